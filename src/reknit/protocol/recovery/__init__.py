"""Recovery: gaps in a series are found, and filled from caches; caches that were apart are aligned.

May import the nouns, `wire`, `protocol/publish`, `protocol/machine.py` and `protocol/effects.py`. Open `recovery.py`
first: a subscriber's side, from arriving batches to released ones. `search.py` asks the caches for missing ranges,
`history.py` asks what they hold, `cache.py` answers, and `alignment.py` compares two caches. A node's side is
`cache_service.py`, with `peer_searches.py`; `loss_reports.py`, `stored_events.py` and `heartbeat_forwarding.py` are what
else it does for publishers and subscribers.
"""

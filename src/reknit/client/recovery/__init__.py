"""Recovery in a client: publishers make their events recoverable, and subscriptions recover missing events.

It may import `connection` and the message router.

Open `subscription_recovery.py` first: which past a subscription wants, and which caches it asks for missing events.
`publisher_recovery.py` is the publisher's side. `caches.py` has `Cache`, which holds events for others.
"""

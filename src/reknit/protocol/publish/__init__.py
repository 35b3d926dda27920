"""Publishing: a publisher numbers events and resends them until they are durable; a node takes each of them once.

`publisher.py` is the client's side of one source, with `heartbeat.py` and `storage_acks.py`. `intake.py` is the
node's side of all sources, with `admission.py` (which batches are refused), `source_positions.py` (the last seq
of each source) and `publisher_connections.py` (which connection speaks for a source).

May import nouns, `wire`, and `protocol/{machine,effects}.py`. Open `publisher.py` first.
"""

"""Replication: events of one node are copied into another's journal, each with its source and seq.

`replica_publisher.py` publishes batches at the target until they are durable there, and `gap_recovery.py` finds what is
missing before them. May import the nouns, `wire`, `protocol/recovery`, `protocol/machine.py`, `protocol/effects.py` and
`protocol/ttl.py`. Open `replica_publisher.py` first.
"""

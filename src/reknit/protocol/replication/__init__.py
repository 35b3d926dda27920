"""Replication: events of one node are copied into another's journal, each with its source and seq.

`replication.py` copies from a source to a target: `replica_publisher.py` publishes batches until they are durable, and
`gap_recovery.py` finds what is missing before them. `bridge_replication.py` is a bridge's, which also follows where
events have been; `alignment_rounds.py` fetches what another node has and this one lacks.

May import the nouns, `wire`, `protocol/recovery`, `protocol/machine.py`, `protocol/effects.py` and `protocol/ttl.py`.
Open `replication.py` first.
"""

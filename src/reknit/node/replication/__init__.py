"""Copies events from one node's journal into another's: relays, bridges and aligners.

Events keep their source and seq, so an event that comes twice is dropped, and a gap is noticed and recovered. This room
may import `connection`, everything below it and `node/recovery`, never `client`: a session with another node is a
`RemoteSession`, which `reknit.server` provides. The machines are in
`reknit.protocol.replication`. Start with `relay.py`, then `replicator.py`.
"""

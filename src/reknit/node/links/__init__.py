"""Links between nodes: connections, routes, and the events and messages that go over them.

The machine in `reknit.protocol.routing` decides which nodes are reachable; this room gives it connections and copies
events from journal to journal. It may import `connection`, `node/core`, `node/peers` and `node/replication`. It meets
anycast and streams through the core (`node/core/parts.py`). Start with `links.py`.
"""

"""Recovery on a node: its connections to further nodes, and the journal of events that an alignment fetched.

What decides is in `reknit.protocol.recovery`, and `node/core/recovery.py` runs it. This room may import `connection`,
`node/core`, `node/peers` and `node/journals.py`. Start with `caches.py`.
"""

"""Recovery on a node: answers requests for past events, searches other caches, and records what is lost.

The machines are in `reknit.protocol.recovery`. This room may import `connection`, `node/core`, `node/peers`
and `node/journals.py`. Start with `caches.py`.
"""

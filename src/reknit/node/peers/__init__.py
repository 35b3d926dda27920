"""The connections of a node: where it listens, who is connected, what each peer may do, and the handshake.

This room may import `transport`, `protocol` and everything below, and nothing else of `node`. Start with `peers.py`.
"""

"""The connections of a node: listeners, connected peers, their permissions, and the handshake.

This room may import `transport`, `protocol` and everything below, and nothing else of `node`. Start with `peers.py`.
"""

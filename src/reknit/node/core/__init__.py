"""The core of a node: every decision, without sockets, threads or a clock. The simulator runs it with virtual time.

This room may import nouns, `config`, `wire`, `protocol` and `store`, and nothing else of `node`. Start with `core.py`.
"""

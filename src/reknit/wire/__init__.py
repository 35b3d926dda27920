"""The codec, and every message that nodes and clients send each other.

This package imports only `reknit/*.py`, `reknit.envelope` and `reknit.config`. Open `messages.py` first: it has the
conversation between a node and a client. `codec.py` turns bytes into messages and batches; `groups.py` and `bundle.py`
have the datagrams of multicast groups.
"""

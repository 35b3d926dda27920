"""Streams on a node: payloads that are sent in chunks, from the sender to one receiver.

The machine is in `reknit.protocol.streams`. This room may import `node/peers`. Start with `streams.py`;
`spill_buffer.py` holds the bytes.
"""

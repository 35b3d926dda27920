"""Streams: events whose payload is sent in chunks, and forwarded while it is still arriving.

May import the nouns and `protocol/machine.py`. Open `streams.py` first: it is the machine. Anycast decides where a
stream goes; this package counts the bytes.
"""

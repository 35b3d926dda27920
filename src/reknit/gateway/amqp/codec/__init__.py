"""AMQP's encoding: types, sections and messages as bytes, and conditions as codes. Sans-I/O, and without proton.

`messages.py` translates messages into events and back; open it first. It uses `sections.py`, and that `encoding.py`.
`bodies.py` does the same for bodies that are still arriving or still being sent. May import nouns only.
"""

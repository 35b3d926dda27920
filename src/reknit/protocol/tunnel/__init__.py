"""Tunnels: a client that was cut off resumes where it left off, or is told that it can't. In mod_pubsub's terms.

May import the nouns and `protocol/machine.py`. Open `client.py` first for a client's side, `server.py` for a node's.
`reconnect.py` decides what a server may promise, `journal_place.py` is a checkpoint as text, and `elements.py` and
`simple_format.py` are events as mod_pubsub has them.
"""

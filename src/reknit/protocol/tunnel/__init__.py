"""Tunnels: a client that was cut off resumes where it left off, or is told that it can't. The terms are mod_pubsub's.

May import the nouns and `protocol/machine.py`. Open `client.py` first for a client's side, `server.py` for a node's.
`reconnect.py` decides what a server may promise, `journal_place.py` is a checkpoint as text, and `elements.py` and
`simple_format.py` are mod_pubsub's form of events.
"""

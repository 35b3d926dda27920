"""Anycast: deliver each event to one of its subscribers, wherever they are, and report its outcome to its publisher.

May import the nouns, `wire`, `protocol/machine.py` and `protocol/effects.py`. The routes come in as `RouteTable`.
Open `machine.py` first: it has the inputs and what each does. `delivery.py` has the states of one delivery, `path.py`
the subscribers and neighbours, `forwarding.py` the choice between them.
"""

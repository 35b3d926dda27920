"""Routing: a node's view of the other nodes, their links and subscriptions, and the routes computed from it.

May import the nouns, `wire` and `protocol/machine.py`. Open `routes.py` first: it is the machine. `inputs.py` has what
goes in and out, `shortest_paths.py` computes the routes.
"""

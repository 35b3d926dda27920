"""Links: which connection to a neighbour counts, what is carried to it and from which position on, and what comes back.

May import the nouns, `config`, `wire`, `protocol/machine.py`, `protocol/routing`, `protocol/anycast` and
`protocol/streams`. Open `machine.py` first: it is the machine. `flows.py` holds what goes from journal to journal.
"""

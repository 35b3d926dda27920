"""Groups: reliable multicast among members, with a fixed window, acks from all, and agreement on the members.

May import the nouns, `config`, `wire`, `protocol/machine.py` and `protocol/effects.py`. Open `member.py` first: it
joins `multicast.py` (the events) and `membership.py` (the members) into the machine of one member. `window.py`
explains the numbers that both sides of a window keep.
"""

"""Subscribers' queues: each is a cursor over the journal, and the exceptions to it. Never a copy of events.

`queue.py` is one subscriber's queue; its table says which part owns what. `shared_queue.py` is one whose `members` share
its events. `registry.py` finds the queues of a node. `unsettled.py` alone changes how many events are in flight.

A queue decides nothing on its own: `protocol/dispatch/` calls its transitions. May import nouns and the modules of
`protocol/`, but not `protocol/dispatch/`. Open `queue.py` first.
"""

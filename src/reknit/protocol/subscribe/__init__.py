"""Subscribing: an application gets every event once and in order, and its outcomes reach the node.

`subscriber.py` is the machine of one subscription, `shared_subscriber.py` that of one which shares events with others.
Both have a `node_subscription.py` (state, credit and outcomes) and `held_events.py` (what the application has).
`inputs.py` has the states and their transitions.

May import nouns, `wire`, the modules of `protocol/`, and `protocol/recovery`. Open `subscriber.py` first.
"""

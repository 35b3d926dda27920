"""Subscribing in a client: events in order, one by one or a batch at a time, and their outcomes back to the node.

It may import `connection`, `client/recovery`, streams, the message router and the options.

Open `subscription.py` first. `driver.py` runs the machine, `delivery_queue.py` has the batches that the application
has not taken yet, `settlement.py` sends outcomes.
"""

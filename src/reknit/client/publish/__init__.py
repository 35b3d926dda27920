"""Publishing in a client: single calls become batches, and each call ends when its events are stored.

It may import `connection`, `client/recovery`, the message router and the options.

Open `publisher.py` first. `batching.py` has the limits of a batch, `window.py` the limit on unacknowledged
events. `outcomes.py` is for publishers that wait for the outcome of their events. `reknit.connection.publish_driver`
resends until the node acknowledges.
"""

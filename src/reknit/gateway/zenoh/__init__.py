"""The Zenoh gateway: a node joins a Zenoh network, and events flow both ways.

Samples from Zenoh become events under the same key (`inbound.py`); events are put into Zenoh (`outbound.py`). Zenoh's
callbacks run on its own threads: `sample_queue.py` brings samples to the event loop, and `threads.py` makes calls that
may block. `samples.py` is pure: which source, seq and batch a sample becomes. Open `gateway.py` first.
"""

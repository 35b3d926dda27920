"""What is fuzzed: one module a target.

`target.py` says what a target is, and is the one to open first. `all.py` has all of them by name.
The targets for a port of a node are `tcp.py`, `http.py`, `amqp.py` and `metrics.py`; the others are tried in a process
of their own.
"""

"""Real processes on this machine: nodes and programs that can be killed and started again.

`reknit demo`, the tests and the benchmarks use them for what a simulation cannot show: sockets, files and the operating
system. The package may import `client` and everything below it. Open `process.py` first; `workers.py` has a publisher
and a subscriber that check every event.
"""

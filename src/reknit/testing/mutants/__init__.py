"""Mutants: faults that are planted one at a time, to see whether the simulations find them.

A mutant that survives shows a hole in the fault plan or in the checks. It may import `testing` and everything below.
Open `mutant.py` first; the faults are in `publish.py`, `dispatch.py`, `subscribe.py`, `recovery.py`, `node.py`,
`store.py`, `links.py`, `anycast.py`, `queues.py` and `drivers.py`, and `planting.py` is the child process that runs one
of them.
"""

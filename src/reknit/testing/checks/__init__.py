"""Checks: what must hold in every simulation, each a function with the sentence that it promises.

A check is given what was observed, and yields the problems that it finds. It knows nothing of the simulator, so that
the simulations of machines and of whole fabrics share it. It may import `node` and everything below. Open
`promise.py` first; `deliveries.py` is checked while a simulation runs, the others when everything is at rest.
"""

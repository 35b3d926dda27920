"""The simulator: a whole fabric in one thread, with virtual time and faults that follow from a seed.

It is shipped, for your own tests too. It runs the production machines and may import `node`, `client` and everything
below them. Open `simulation.py` first, then `world.py`; `faults.py` has every fault, `network.py` and `clock.py` can be
used alone, and `witness.py` says what must hold.
"""

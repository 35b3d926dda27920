"""Whole groups in virtual time: real machines and real datagrams over a network that loses, repeats and reorders.

Open `simulation.py` first. `plan.py` has the faults, `checks.py` what must hold at the end, `stranger.py` the hostile
datagrams. `python -m reknit.testing.simulate --group --seeds 500` runs many.
"""

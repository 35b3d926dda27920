"""Chaos: a fabric of real processes with real faults, after which every event has to be accounted for.

`python -m reknit.testing.chaos` runs it. The package may import `processes`, `client`, `spark` and everything below
them. Open `campaign.py` first: a plan of faults (`plan.py`) is carried out (`injector.py`) on a fabric (`fabric.py`)
whose clients (`programs/`) record what they did, and `checks.py` compares their records with the nodes' ledgers and the
pipeline's audit.
"""

"""The parts of a running journal. Each does one thing to the state that they share (`log_state.py`).

`composed.py` lists them with their threads: staging, committing and queries for every journal; checkpoints and
retention for a journal on disk. `damage_finder.py` decides what is lost where a read finds damage.

May import values and the other rooms of `store/`. Open `composed.py` first, then `log_state.py`.
"""

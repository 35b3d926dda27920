"""The index: where the events of each series are, and the ledger, as of one position of the log.

`series.py` has the part in memory, `index.py` the part in LMDB, which `rows.py` describes row by row. `snapshot.py` is
what a checkpoint saves.

May import values and `store/log/`. Open `index.py` first.
"""

"""A journal's directory: who may write it, how it is opened, checked and repaired.

`layout.py` names the files, `index_check.py` opens the index, `opening.py` loads it and replays the rest of the log,
`verification.py` checks everything, `repair.py` sets damage aside, `existence.py` knows what was lost with it,
`backup.py` copies and restores everything.

May import values, `store/log/` and `store/index/`. Open `layout.py` first.
"""

"""A journal's directory: who may write it, how it is opened, checked and repaired.

`layout.py` names the files, `opening.py` loads the index and replays the rest of the log, `survey.py` checks every
frame, `repair.py` sets damage aside.

May import values, `store/log/` and `store/index/`. Open `layout.py` first.
"""

"""`reknit demo`: a small fabric of real processes, faults, and a check that no event is lost.

It may import `processes`, `client` and the rest of `cli`. Open `command.py` first, then `run.py`; `fabric.py` starts,
kills and checks the processes, and `screen.py` shows them.
"""

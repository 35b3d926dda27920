"""`reknit up`: run a node with its journal until Ctrl-C.

`command.py` imports nothing heavy; `run.py` does the work when the command runs. It may import `server` and `node`.
"""

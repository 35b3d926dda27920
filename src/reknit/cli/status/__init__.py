"""`reknit status`: the state of a node.

`command.py` imports nothing heavy; `screen.py` draws the tables when the command runs. It may import `client`.
"""

"""`reknit pub` and `reknit sub`: publish events and print them.

`pub.py` and `sub.py` are the commands and import nothing heavy; `publish.py` and `receive.py` do the work when a command
runs. They may import `client`.
"""

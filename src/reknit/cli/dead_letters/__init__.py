"""`reknit dead-letters`: events that ended undelivered, with their reasons; redrive or drop them.

`commands.py` and `filters.py` import nothing heavy. `requests.py` talks to the node, `selection.py` reads the filters,
and `output.py` prints.
"""

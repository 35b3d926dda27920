"""`reknit pipeline …`: the fabric's events in tables, on Spark, and the proof that none is missing.

May import `spark` and the rest of `cli`. Spark is imported inside the commands, since it takes long to load. Open
`commands.py` first: it lists them.
"""

"""`reknit pipeline …`: the fabric's events in tables, on Spark, and the proof that none is missing.

May import `spark` and the rest of `cli`. Open `commands.py` first: it imports nothing heavy. The other modules do the
work, and are imported when a command runs, since Spark takes long to load.
"""

"""The lake: a folder of Delta tables, and the commits that add to several of them at once.

May import the nouns. Only `spark_tables` and `columns` need Spark; an archive is read without it. Open `tables.py`
first for the columns, `lake.py` for the commits.
"""

"""The lake: a folder of Parquet tables, and the commit log that says which files count.

May import the nouns. Only `spark_tables` and `columns` need Spark; an archive is read without it. Open `tables.py`
first for the columns, `commit_log.py` for the files.
"""

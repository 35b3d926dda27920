"""Reads the journals of nodes into Spark, by position, as rows of events, batches or outcomes.

May import the nouns, store and `spark`'s own options and connection; nothing of sink, lake, stages or pipeline.
Open `stream_reader.py` first, or `table_reader.py` for a read that ends; both plan with `query_nodes`, and their
tasks read with `partitions`.
"""

"""The data pipeline on Spark: journals as tables and streaming queries, a sink, a lake and its audit.

May import the nouns, wire, store, transport, connection and client; never node, gateway or cli. The rooms, each of
which may import the ones before it:

runtime     finds Java and builds a Spark session
source      reads nodes' journals: the reader side of the data source
sink        publishes rows to a node: the writer side
lake        the tables and their commit log (works without Spark, except `spark_tables`)
stages      capture, settle, events, dead letters, audit, redrive
pipeline    all stages on one lake, with progress and the audit page

Open `data_source.py` first for the source and the sink, `pipeline/pipeline.py` for the pipeline.
"""

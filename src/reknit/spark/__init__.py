"""The data pipeline: what happens after the fact, on Spark."""

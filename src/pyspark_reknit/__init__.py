"""Where Spark looks for data sources: a module `pyspark_…` with a `DefaultSource`."""

from reknit.spark.source.data_source import ReknitDataSource as DefaultSource

__all__ = ["DefaultSource"]

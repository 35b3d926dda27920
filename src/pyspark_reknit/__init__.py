"""Where Spark looks for a data source by name: a module `pyspark_<name>` with a class `DefaultSource`."""

from reknit.spark.data_source import ReknitDataSource as DefaultSource

__all__ = ["DefaultSource"]

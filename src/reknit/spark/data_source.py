"""The data source `reknit`: reads the journals of nodes as a table or a streaming query, and publishes rows."""

from __future__ import annotations

import sys
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from reknit.spark.sink.options import SinkOptions
from reknit.spark.sink.writers import ReknitStreamWriter, ReknitWriter
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.schema import check_schema, full_schema
from reknit.spark.source.stream_reader import ReknitStreamReader
from reknit.spark.source.table_reader import FilteringReader, ReknitReader

__all__ = ["ReknitDataSource"]

_PUSHDOWN_MODULE: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class ReknitDataSource(DataSource):
    """Format `reknit`. Spark finds it by its name where the package is installed, without `register`.

        spark.readStream.format("reknit").option("nodes", "tcp://127.0.0.1:7440").load()

    `docs/reference/spark-source.md` has every option and column.
    """

    @classmethod
    def name(cls) -> str:
        return "reknit"

    def schema(self) -> StructType:
        return full_schema(SourceOptions.read(self.options).rows)

    def reader(self, schema: StructType) -> DataSourceReader:
        options, arrow = self._options_and_schema(schema)
        # Spark refuses a reader with pushFilters where the session does not push filters down
        # (spark.sql.python.filterPushdown.enabled). Only the process that pushes them has loaded this module.
        cls = FilteringReader if _PUSHDOWN_MODULE in sys.modules else ReknitReader
        return cls(options, arrow)

    def streamReader(self, schema: StructType) -> ReknitStreamReader:
        return ReknitStreamReader(*self._options_and_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> ReknitWriter:
        return ReknitWriter(SinkOptions.read(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ReknitStreamWriter:
        return ReknitStreamWriter(SinkOptions.read(self.options), schema)

    def _options_and_schema(self, schema: StructType) -> tuple[SourceOptions, pa.Schema]:
        options = SourceOptions.read(self.options)
        return options, to_arrow_schema(check_schema(options.rows, schema), timezone="UTC")

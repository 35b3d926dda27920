"""The data source `reknit`: a fabric's journals as a table or a stream, and a place to write to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from reknit.errors import NotConnected
from reknit.spark.source.fabric import Fabric, table_step
from reknit.spark.source.filters import Wanted
from reknit.spark.source.options import SinkOptions, SourceOptions
from reknit.spark.source.partitions import Part, PartReader
from reknit.spark.source.schema import check_schema, full_schema
from reknit.spark.source.stream import ReknitStreamReader

if TYPE_CHECKING:
    from reknit.spark.sink.sink import ReknitStreamWriter, ReknitWriter

__all__ = ["ReknitDataSource"]

_PUSHDOWN: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class ReknitDataSource(DataSource):
    """Format `reknit`. Found by its name where the package is installed, without `register`.

        spark.readStream.format("reknit").option("nodes", "tcp://127.0.0.1:7440").load()

    `docs/reference/spark-source.md` has every option and column.
    """

    @classmethod
    def name(cls) -> str:
        return "reknit"

    def schema(self) -> StructType:
        return full_schema(SourceOptions.read(self.options).rows)

    def reader(self, schema: StructType) -> DataSourceReader:
        options, arrow = self._asked(schema)
        # A reader that takes filters is refused where the session does not push any (spark.sql.python.
        # filterPushdown.enabled); only the process that pushes them has this module.
        cls = PushingReader if _PUSHDOWN in sys.modules else ReknitReader
        return cls(options, arrow)

    def streamReader(self, schema: StructType) -> ReknitStreamReader:
        return ReknitStreamReader(*self._asked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> ReknitWriter:
        from reknit.spark.sink.sink import ReknitWriter

        return ReknitWriter(SinkOptions.read(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ReknitStreamWriter:
        from reknit.spark.sink.sink import ReknitStreamWriter

        return ReknitStreamWriter(SinkOptions.read(self.options), schema)

    def _asked(self, schema: StructType) -> tuple[SourceOptions, pa.Schema]:
        options = SourceOptions.read(self.options)
        return options, to_arrow_schema(check_schema(options.rows, schema), timezone="UTC")


class ReknitReader(DataSourceReader):
    """Everything that the nodes hold at the moment of planning."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        after = None if isinstance(options.start, str | int) else options.start
        self._wanted = Wanted(options.topics, after)

    def partitions(self) -> Sequence[InputPartition]:
        with closing(Fabric(self._options)) as fabric:
            wanted = [part for part in self._parts(fabric) if self._wanted.overlaps(part.start, part.stop)]
        # Without any part Spark would make one up that says nothing.
        return wanted or [Part("", "", "", "", 0, 0)]

    def _parts(self, fabric: Fabric) -> list[Part]:
        places = fabric.look()
        if fabric.away and self._options.fail_on_node_away is not False:
            url, why = next(iter(fabric.away.items()))
            raise NotConnected(url, f"{why}; failOnNodeAway=false reads the others alone")
        firsts = {key: fabric.first(place) for key, place in places.items()}
        size = sum(place.span.end - firsts[key] for key, place in places.items())
        step = table_step(size, os.cpu_count() or 1)
        parts: list[Part] = []
        for key, place in places.items():
            parts += fabric.parts(place, firsts[key], place.span.end, step)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part), "a part that this reader planned"
        return PartReader(self._options, self._wanted, self._schema).read(partition)


class PushingReader(ReknitReader):
    """As above, and batches without anything that Spark's filters want are passed over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted = self._wanted.push(filters)
        return filters  # rows are Spark's to judge: here it is about whole batches

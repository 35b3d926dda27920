"""The batch reader: everything that the nodes hold when the query is planned, as a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from reknit.errors import NotConnected
from reknit.spark.source.filters import BatchFilter
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.partitions import JournalPartition, PartitionReader
from reknit.spark.source.query_nodes import QueryNodes, table_step

__all__ = ["FilteringReader", "ReknitReader"]


class ReknitReader(DataSourceReader):
    """Reads everything that the nodes hold at the moment of planning."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._filter = BatchFilter(options.topics, options.checkpoint)

    def partitions(self) -> Sequence[InputPartition]:
        with closing(QueryNodes(self._options)) as nodes:
            every = self._partitions(nodes)
        overlapping = [part for part in every if self._filter.overlaps(part.start, part.stop)]
        # Without any partition Spark would add one of its own, which this reader can't read.
        return overlapping or [JournalPartition("", "", "", "", 0, 0)]

    def _partitions(self, nodes: QueryNodes) -> list[JournalPartition]:
        journals = nodes.poll()
        if nodes.away and self._options.fail_on_node_away is not False:
            url, why = next(iter(nodes.away.items()))
            raise NotConnected(url, f"{why}; failOnNodeAway=false reads the others alone")
        starts = {key: nodes.first_position(journal) for key, journal in journals.items()}
        size = sum(journal.span.end - starts[key] for key, journal in journals.items())
        step = table_step(size, os.cpu_count() or 1)
        found: list[JournalPartition] = []
        for key, journal in journals.items():
            found += nodes.partitions(journal, starts[key], journal.span.end, step)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalPartition), "a partition that this reader planned"
        return PartitionReader(self._options, self._filter, self._schema).read(partition)


class FilteringReader(ReknitReader):
    """Also skips batches in which no event can pass the filters that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filter = self._filter.push(filters)
        return filters  # Spark still filters the rows: here only whole batches are skipped

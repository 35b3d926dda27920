"""The writers: publish rows to a node. A micro-batch that runs again publishes nothing twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from reknit.spark.options import InvalidOption
from reknit.spark.sink.options import SinkOptions
from reknit.spark.sink.publisher import SinkPublisher

__all__ = ["ReknitStreamWriter", "ReknitWriter"]

COLUMNS: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "payload": (BinaryType(), StringType()),
    "key": (StringType(),),
    "headers": (MapType(StringType(), StringType()),),
    "ttl_ms": (IntegerType(), LongType()),
    "time": (TimestampType(),),
}
"""The columns that can be written, and the types that each may have."""

_VARYING: Final = {"key": "key", "headers": "headers", "ttl_ms": "ttl", "time": "time"}
"""Columns that may differ between the events of a batch, and their names in a batch."""

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class WriteResult(WriterCommitMessage):
    """How many rows one task wrote, and how many of them the node already had."""

    rows: int
    dropped: int


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Raise `InvalidOption` if rows of this schema can't be written."""
    known = ", ".join(COLUMNS)
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise InvalidOption("columns", repr(field.name), f"can't be written: select some of {known}")
        if not any(type(field.dataType) is type(kind) for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise InvalidOption(
                "columns", f"{field.name} {field.dataType.simpleString()}", f"must be {wanted}"
            )
    if "payload" not in schema.names:
        raise InvalidOption("columns", "payload", "is missing: it holds the events' bytes")
    if "topic" not in schema.names and not options.topic:
        raise InvalidOption("topic", "it", "is required if the rows have no column topic")


class ReknitStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. The query's id, from its checkpoint, names the sink unless option sinkId does."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query = context.getLocalProperty(_QUERY_ID)
        sink = self._options.sink_id or query
        number = context.getLocalProperty(_BATCH_ID)
        assert sink, "a task of a streaming query knows its query"
        assert number, "a task of a streaming query knows its micro-batch"
        named = query if self._options.sink_id else ""
        return write_rows(self._options, sink, int(number), context.partitionId(), iterator, named or "")


class ReknitWriter(DataSourceArrowWriter):
    """Writes a DataFrame. With sinkId and batchId, repeating the same write publishes nothing twice."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        if bool(options.sink_id) != (options.batch_id >= 0):
            raise InvalidOption(
                "sinkId", "sinkId", "and batchId go together: the sink's name, and the number of this write"
            )
        self._options = options
        # Chosen here, on the driver, so that a task that runs again has the same sink.
        self._sink, self._batch_id = options.sink_id or uuid4().hex, max(0, options.batch_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        return write_rows(self._options, self._sink, self._batch_id, context.partitionId(), iterator)


def write_rows(
    options: SinkOptions,
    sink: str,
    batch_id: int,
    partition: int,
    batches: Iterator[pa.RecordBatch],
    query: str = "",
) -> WriteResult:
    """Publish the rows of one partition; returns when they are durable."""
    publisher: SinkPublisher | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                publisher = publisher or SinkPublisher(options, sink, batch_id, partition, query)
                for topic, rows in by_topic(batch, options.topic):
                    publisher.put(topic, *_content(rows, options))
        if publisher is None:
            return WriteResult(0, 0)
        publisher.close()
        return WriteResult(publisher.count, publisher.dropped)
    except BaseException:
        if publisher is not None:
            publisher.abort()
        raise


def by_topic(batch: pa.RecordBatch, default: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in order."""
    if "topic" not in batch.schema.names:
        yield default, batch
        return
    topics = batch.column("topic")
    if topics.null_count:
        topics = topics.fill_null(default)
    for topic in pc.unique(topics).to_pylist():
        yield topic, batch.filter(pc.equal(topics, topic))


def _content(rows: pa.RecordBatch, options: SinkOptions) -> tuple[list[bytes], dict[str, list[Any]]]:
    """The payloads, and the columns in which events differ."""
    payloads = rows.column("payload")
    if payloads.null_count:
        raise InvalidOption(
            "columns", "payload", "is null in a row: use an empty value for an event without bytes"
        )
    columns: dict[str, list[Any]] = {}
    for name in set(rows.schema.names) & _VARYING.keys():
        values = rows.column(name)
        if values.null_count < len(values):
            columns[_VARYING[name]] = _values(name, values, options)
    return payloads.cast(pa.binary()).to_pylist(), columns


def _values(name: str, values: pa.Array, options: SinkOptions) -> list[Any]:
    """A value for each event; null becomes the value of an event without the column."""
    match name:
        case "headers":
            return [dict(one or ()) for one in values.to_pylist()]
        case "time":
            given = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            return list(given.fill_null(time.time_ns() // 1000).to_pylist())
        case "ttl_ms":
            return list(values.fill_null(options.ttl_ms).to_pylist())
        case _:
            return list(values.to_pylist())

"""The sink: rows back into the fabric. A micro-batch that runs again delivers nothing twice."""

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

from reknit.spark.sink.outlet import Outlet
from reknit.spark.source.options import InvalidOption, SinkOptions

__all__ = ["ReknitStreamWriter", "ReknitWriter"]

COLUMNS: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "payload": (BinaryType(), StringType()),
    "key": (StringType(),),
    "headers": (MapType(StringType(), StringType()),),
    "ttl_ms": (IntegerType(), LongType()),
    "time": (TimestampType(),),
}
"""The columns that are written, and what they may be."""

_VARYING: Final = {"key": "key", "headers": "headers", "ttl_ms": "ttl", "time": "time"}
"""What may differ from event to event, and its name in a batch."""

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """What one task did."""

    rows: int
    dropped: int


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Raise `InvalidOption` unless these rows can be written."""
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
        raise InvalidOption("columns", "payload", "is missing: it is what an event carries")
    if "topic" not in schema.names and not options.topic:
        raise InvalidOption("topic", "it", "is needed where rows have no column topic")


class ReknitStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. The query's id in its checkpoint names the sink unless option sinkId does."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        sink = self._options.sink_id or context.getLocalProperty(_QUERY_ID)
        number = context.getLocalProperty(_BATCH_ID)
        assert sink, "a streaming query's task knows its query"
        assert number, "and its micro-batch"
        return write_rows(self._options, sink, int(number), context.partitionId(), iterator)


class ReknitWriter(DataSourceArrowWriter):
    """Writes a frame once. With sinkId and batchId also a repeated write delivers nothing twice."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        if bool(options.sink_id) != (options.batch_id >= 0):
            raise InvalidOption(
                "sinkId", "sinkId", "and batchId go together: a name, and which write of it this is"
            )
        self._options = options
        # Made here, on the driver, so that a task that runs again is known.
        self._sink, self._batch_id = options.sink_id or uuid4().hex, max(0, options.batch_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        return write_rows(self._options, self._sink, self._batch_id, context.partitionId(), iterator)


def write_rows(
    options: SinkOptions, sink: str, batch_id: int, partition: int, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Publish the rows of one partition, and return when they are durable."""
    outlet: Outlet | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                outlet = outlet or Outlet(options, sink, batch_id, partition)
                for topic, rows in by_topic(batch, options.topic):
                    outlet.put(topic, *_content(rows, options))
        if outlet is None:
            return Written(0, 0)
        outlet.close()
        return Written(outlet.count, outlet.dropped)
    except BaseException:
        if outlet is not None:
            outlet.abort()
        raise


def by_topic(batch: pa.RecordBatch, default: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order."""
    if "topic" not in batch.schema.names:
        yield default, batch
        return
    topics = batch.column("topic")
    if topics.null_count:
        topics = topics.fill_null(default)
    for topic in pc.unique(topics).to_pylist():
        yield topic, batch.filter(pc.equal(topics, topic))


def _content(rows: pa.RecordBatch, options: SinkOptions) -> tuple[list[bytes], dict[str, list[Any]]]:
    """Payloads, and the columns in which events differ."""
    payloads = rows.column("payload")
    if payloads.null_count:
        raise InvalidOption("columns", "payload", "is null in a row: an event carries bytes, if only none")
    columns: dict[str, list[Any]] = {}
    for name in set(rows.schema.names) & _VARYING.keys():
        values = rows.column(name)
        if values.null_count < len(values):
            columns[_VARYING[name]] = _values(name, values, options)
    return payloads.cast(pa.binary()).to_pylist(), columns


def _values(name: str, values: pa.Array, options: SinkOptions) -> list[Any]:
    """A value for each event: a null is what an event without the column would have."""
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

"""The columns that capture and settle read from a batch's header are those of the batch."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from reknit.batch import Batch
from reknit.spark.source.arrow import BatchTables
from reknit.spark.source.frame_scan import scan
from reknit.spark.source.schema import BATCHES
from reknit.spark.stages.capture import batch_rows
from reknit.spark.stages.settle.expand import view

# The packed columns of the last have more than 255 bytes: both digits of more than one byte count.
COLUMNS: list[dict[str, list[Any]]] = [{}, {"ttl": [1, 2, 3]}, {"headers": [{"key": "v" * 400}, None, None]}]
MADE = [
    Batch.build(bytes(16), "plant/a", 1 + 3 * at, [b"1", b"2", b"3"], time_us=at, columns=columns)
    for at, columns in enumerate(COLUMNS)
]


def test_columns_bytes_is_the_length_of_the_packed_columns(spark: SparkSession) -> None:
    frames, _ = scan(memoryview(b"".join(bytes(batch.data) for batch in MADE)), 0)
    made = pa.Table.from_batches(BatchTables("a", to_arrow_schema(BATCHES, timezone="UTC")).tables(frames))
    rows = batch_rows(spark.createDataFrame(made)).orderBy("first").collect()
    packed = [len(msgspec.msgpack.encode(columns)) if columns else 0 for columns in COLUMNS]
    assert packed[2] > 255
    assert [row["columns_bytes"] for row in rows] == packed


def test_a_frame_is_read_with_the_count_of_its_header() -> None:
    rows: dict[str, list[Any]] = {"source": [bytes(16)], "topic": ["plant/a"], "first": [4]}
    found = view(rows, pa.py_buffer(bytes(MADE[1].data)), 0)
    assert (found.count, found.payloads()) == (3, [b"1", b"2", b"3"])

"""Batches become the same columns as a plain loop over their events makes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.errors import MalformedFrame
from reknit.records import SubscriberClosed, encode
from reknit.spark.source import arrow
from reknit.spark.source.arrow import BatchTables, EventTables
from reknit.spark.source.filters import BatchFilter
from reknit.spark.source.frame_scan import ScannedFrames, scan
from reknit.spark.source.schema import BATCHES, EVENTS
from reknit.topic import Pattern

POSITION = 4096


def schema(struct: StructType, *names: str) -> pa.Schema:
    picked = StructType([struct[name] for name in names]) if names else struct
    return to_arrow_schema(picked, timezone="UTC")


def scanned(batches: list[Batch]) -> ScannedFrames:
    data = b"".join(bytes(batch.data) for batch in batches)
    frames, end = scan(memoryview(data), POSITION)
    assert end == len(data)
    return frames


def rows(tables: Any) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


def positions(batches: list[Batch]) -> list[int]:
    lengths = [batch.head.length for batch in batches]
    return [POSITION + sum(lengths[:index]) for index in range(len(lengths))]


def moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def plain_events(batches: list[Batch]) -> list[dict[str, Any]]:
    return [
        {
            "node": "a",
            "position": position,
            "topic": event.topic,
            "source": event.source,
            "seq": event.seq,
            "time": moment(event.time_us),
            "ttl_ms": event.ttl_ms,
            "priority": batch.head.priority,
            "type": batch.head.type,
            "payload": event.payload,
            "headers": list(event.headers.items()) or None,
        }
        for batch, position in zip(batches, positions(batches), strict=True)
        for event in batch.events()
    ]


@st.composite
def some_batches(draw: st.DrawFn) -> list[Batch]:
    made = []
    for _ in range(draw(st.integers(1, 6))):
        payloads = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=9))
        columns: dict[str, list[Any]] = {}
        if draw(st.booleans()):
            texts = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
            columns["headers"] = [draw(texts) for _ in payloads]
            columns["ttl"] = [draw(st.integers(0, 99)) for _ in payloads]
            columns["time"] = [draw(st.integers(1, 10**15)) for _ in payloads]
        source = bytes([draw(st.integers(0, 2))]) * 16
        topic = draw(st.sampled_from(["a", "plant/temp", "plant/ü"]))
        first, time_us = draw(st.integers(1, 99)), draw(st.integers(0, 10**15))
        made.append(Batch.build(source, topic, first, payloads, time_us, 7, 2, 3, columns or None))
    return made


@given(some_batches(), st.integers(1, 20))
def test_events_are_those_of_the_batches(batches: list[Batch], rows_wanted: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "ROWS", rows_wanted)
        tables = list(EventTables("a", schema(EVENTS)).tables(scanned(batches)))
    for table in tables:
        table.validate(full=True)
    assert rows(tables) == plain_events(batches)


@given(some_batches())
def test_a_row_a_batch_has_its_head_and_its_frame(batches: list[Batch]) -> None:
    found = rows(BatchTables("a", schema(BATCHES)).tables(scanned(batches)))
    assert found == [
        {
            "node": "a",
            "position": position,
            "topic": batch.topic,
            "source": batch.source,
            "first": batch.first,
            "stop": batch.stop,
            "count": batch.count,
            "time": moment(batch.time_us),
            "ttl_ms": 7,
            "priority": 2,
            "type": 3,
            "length": batch.head.length,
            "data": bytes(batch.data),
        }
        for batch, position in zip(batches, positions(batches), strict=True)
    ]


@given(some_batches(), st.integers(0, 110))
def test_after_a_checkpoint_come_only_later_events(batches: list[Batch], seq: int) -> None:
    after = Checkpoint({bytes(16): seq, b"\1" * 16: 50})
    picked = BatchFilter(after=after).pick(scanned(batches))
    found = rows(EventTables("a", schema(EVENTS)).tables(picked))
    assert found == [row for row in plain_events(batches) if row["seq"] > after.get(row["source"])]


@given(some_batches())
def test_patterns_pick_batches(batches: list[Batch]) -> None:
    picked = BatchFilter(patterns=(Pattern("plant/*"),)).pick(scanned(batches))
    assert picked.topics() == [batch.topic for batch in batches if batch.topic.startswith("plant/")]


def test_the_payloads_of_one_batch_are_not_copied() -> None:
    frames = scanned([Batch.build(bytes(16), "a", 1, [b"x" * 100] * 50, time_us=0)])
    [table] = EventTables("a", schema(EVENTS, "payload")).tables(frames)
    data = table.column(0).buffers()[2]
    low = np.frombuffer(frames.view, dtype=np.uint8).__array_interface__["data"][0]
    assert low <= data.address < low + len(frames.view)


def test_large_groups_are_cut_between_batches() -> None:
    batches = [Batch.build(bytes(16), "a", 1 + 4000 * n, [b"x"] * 4000, time_us=0) for n in range(7)]
    tables = list(EventTables("a", schema(EVENTS, "seq")).tables(scanned(batches)))
    assert [table.num_rows for table in tables] == [8000, 12000, 8000]


def test_records_are_told_apart_from_batches() -> None:
    batch = Batch.build(bytes(16), "a", 1, [b"x"], time_us=0)
    record = encode(SubscriberClosed("audit"))
    found: list[tuple[int, memoryview]] = []
    frames, _ = scan(memoryview(record + bytes(batch.data)), 0, records=found)
    assert frames.offsets.tolist() == [len(record)]
    assert [(position, bytes(frame)) for position, frame in found] == [(0, record)]


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(Batch.build(bytes(16), "a", 1, [b"hello"], time_us=0).data)
    data[-1] ^= 1
    with pytest.raises(MalformedFrame, match="position 4096"):
        scan(memoryview(data), POSITION)

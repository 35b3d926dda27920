"""The scan finds every part of a batch where the batch itself has it."""

from __future__ import annotations

import msgspec

from reknit.batch import Batch
from reknit.spark.source.frame_scan import scan

BATCHES = [
    Batch.build(bytes(range(16)), "plant/a", 7, [b"one", b"", b"three"], time_us=1, ttl_ms=2, priority=5),
    Batch.build(bytes(16), "plant/longer", 1, [b"x"] * 5, time_us=3, columns={"ttl": [1, 2, 3, 4, 5]}),
]


def test_the_headers_have_the_values_of_the_batches() -> None:
    frames, _ = scan(memoryview(b"".join(bytes(batch.data) for batch in BATCHES)), 0)
    assert frames.topics() == [batch.topic for batch in BATCHES]
    assert frames.sources() == [batch.source for batch in BATCHES]
    for name in ("first", "count", "length", "time_us", "ttl_ms", "priority", "type", "flags"):
        assert frames.heads[name].tolist() == [getattr(batch.head, name) for batch in BATCHES], name


def test_the_sections_are_where_the_batches_have_them() -> None:
    view = memoryview(b"".join(bytes(batch.data) for batch in BATCHES))
    frames, end = scan(view, 0)
    places = zip(*(offsets.tolist() for offsets in frames.sections()), strict=True)
    for batch, (columns_at, lengths_at, block_at) in zip(BATCHES, places, strict=True):
        packed = msgspec.msgpack.encode(batch.columns()) if batch.columns() else b""
        assert view[columns_at : columns_at + len(packed)] == packed
        assert view[lengths_at : lengths_at + 4 * batch.count] == batch.lengths().cast("B")
        assert view[block_at : block_at + len(batch.block())] == batch.block()
    assert end == len(view)

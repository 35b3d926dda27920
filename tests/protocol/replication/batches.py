"""Batches for the tests of replication: the same range is the same object."""

from __future__ import annotations

from functools import cache

from reknit.batch import Batch

TOPIC = "plant/temp"
ANN, BOB = b"a" * 16, b"b" * 16
SERIES = (TOPIC, ANN)


@cache
def made(first: int, stop: int, source: bytes = ANN, ttl_ms: int = 0, time_us: int = 0) -> Batch:
    """Events `[first, stop)`."""
    payloads = [b"%d" % seq for seq in range(first, stop)]
    return Batch.build(source, TOPIC, first, payloads, time_us, ttl_ms=ttl_ms)


def bounds(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.first, batch.stop) for batch in batches]

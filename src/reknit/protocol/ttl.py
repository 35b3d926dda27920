"""Time to live: which events of a batch expire, and when.

An event expires at `min(time, now) + ttl`, on the clock of the node (or subscriber) that looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reknit.batch import Batch, Head
from reknit.seqset import Range, SeqSet

EXPIRED_BETWEEN_ATTEMPTS: Final = "its ttl ran out while it was being tried"
"""The text of a dead letter whose event expired after its first attempt."""


def deadlines_of(
    head: Head, columns: Mapping[str, list[Any]], default_ms: int, now_us: int
) -> Iterator[tuple[int, int, int]]:
    """(start, stop, deadline in microseconds since 1970) of a batch's events that expire.

    `default_ms` is the topic's ttl, for events without one.
    """
    born_us = min(head.time_us, now_us)
    ttl_ms = head.ttl_ms or default_ms
    if "ttl" not in columns:
        if ttl_ms:
            yield head.first, head.stop, born_us + ttl_ms * 1000
        return
    for seq, event_ttl_ms in enumerate(columns["ttl"], head.first):
        if event_ttl_ms:
            yield seq, seq + 1, born_us + event_ttl_ms * 1000


def overdue_of(batch: Batch, default_ms: int, now_us: int) -> list[Range]:
    """Which events of a batch are past their ttl."""
    head = batch.head
    if not (default_ms or head.ttl_ms or head.flags):
        return []
    columns = batch.columns() if head.ttl_ms or head.flags else {}
    deadlines = deadlines_of(head, columns, default_ms, now_us)
    return SeqSet.from_ranges((start, stop) for start, stop, due_us in deadlines if due_us < now_us).ranges()

"""What live queues with one pattern take of a run: worked out once for all of them."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from reknit.entries import Run
from reknit.protocol.effects import RunSlice
from reknit.protocol.queues.queue import PassedBatch


class RunShare(msgspec.Struct, frozen=True):
    """The batches of a run on some topics, back to back."""

    pieces: list[RunSlice]
    batches: list[PassedBatch]
    size: int
    room_min: int
    """A subscriber takes all of it if it takes at least so many bytes: the last batch may be over its credit."""
    is_plain: bool
    """Whether they can be delivered unchanged: none has a ttl or flags, and no rule is about them."""


def share_of(run: Run, topics: Container[str], is_plain: bool) -> RunShare:
    """The batches of a run on these topics: at least one. `is_plain`: the rules of all topics are."""
    pieces: list[RunSlice] = []
    batches: list[PassedBatch] = []
    size, low, last = 0, -1, 0
    for index, entry in enumerate(run.entries):
        head = entry.head
        if head.topic not in topics:
            if low >= 0:
                pieces.append(RunSlice(run, low, index))
            low = -1
            continue
        low = index if low < 0 else low
        last = head.length
        size += last
        is_plain = is_plain and not head.ttl_ms and not head.flags
        series = (head.topic, head.source)
        batches.append((entry.position, series, head.first, head.first + head.count, last / head.count))
    if low >= 0:
        pieces.append(RunSlice(run, low, len(run.entries)))
    return RunShare(pieces, batches, size, size - last + 1, is_plain)

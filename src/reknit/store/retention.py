"""Which of the oldest segments may go: a pure decision over their totals.

A segment goes as a whole, when any limit asks for it. By count and by age that is when everything in it is
over the limit, so a little more is held; by bytes it is as soon as the journal is over it, so that the disk's
limit holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


class Retention(msgspec.Struct, frozen=True):
    """How much to hold; None is without limit.

    >>> Retention(bytes_max=1 << 30).count_max is None
    True
    """

    count_max: int | None = None
    """Hold the last so many events."""
    bytes_max: int | None = None
    """Hold at most so many bytes (but always the segment that is being written)."""
    age_s_max: float | None = None
    """Hold everything for so long."""


@dataclass(slots=True)
class Segment:
    """The totals of one file of the log (or of as much memory): positions `[start, end)`."""

    start: int
    end: int
    events: int = 0
    first_us: int = 0
    last_us: int = 0
    """When the first and the last of it were kept."""


def removable(segments: Sequence[Segment], retention: Retention, now_us: int, floor: int) -> int:
    """How many of the oldest segments may go. The last one, which is written, and what is past `floor` stay.

    >>> old, new = Segment(0, 100, 10, 1, 2), Segment(100, 200, 10, 3, 4)
    >>> removable([old, new], Retention(count_max=10), 5, floor=200)
    1
    >>> removable([old, new], Retention(count_max=11), 5, floor=200)
    0
    """
    held_bytes = sum(segment.end - segment.start for segment in segments)
    held_events = sum(segment.events for segment in segments)
    gone = 0
    for segment in segments[:-1]:
        over_bytes = retention.bytes_max is not None and held_bytes > retention.bytes_max
        held_bytes -= segment.end - segment.start
        held_events -= segment.events
        over_count = retention.count_max is not None and held_events >= retention.count_max
        over_age = retention.age_s_max is not None and now_us - segment.last_us > retention.age_s_max * 1e6
        if segment.end > floor or not (over_bytes or over_count or over_age):
            break
        gone += 1
    return gone

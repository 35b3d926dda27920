"""Which of the oldest segments retention removes: a pure decision over their totals.

Retention removes whole segments. For the limits by count and by age, everything in the segment must be over the
limit, so the journal holds a little more than asked. For the limit by bytes, the journal as a whole must be over it,
so that the disk never holds more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


class Retention(msgspec.Struct, frozen=True):
    """How much to hold; None means no limit.

    >>> Retention(bytes_max=1 << 30).count_max is None
    True
    """

    count_max: int | None = None
    """Hold at least this many of the newest events."""
    bytes_max: int | None = None
    """Hold at most this many bytes (but always the segment that is being written)."""
    age_s_max: float | None = None
    """Hold everything for at least this long."""


@dataclass(slots=True)
class Segment:
    """The totals of one file of the log (or of as much memory): positions `[start, end)`."""

    start: int
    end: int
    events: int = 0
    first_us: int = 0
    last_us: int = 0
    """When its first and its last entry were stored, by the journal's own time."""

    def store(self, end: int, events: int = 0) -> None:
        """More was stored: the segment reaches up to `end`."""
        self.end = max(self.end, end)
        self.events += events

    def cut(self, end: int) -> None:
        """The segment ends here."""
        self.end = end

    def lose(self, events: int) -> None:
        """This many of its events are lost."""
        self.events = max(0, self.events - events)

    def stored_at(self, now_us: int) -> None:
        """Something is stored now."""
        self.last_us = now_us
        self.first_us = self.first_us or now_us

    def stored_between(self, first_us: int, last_us: int) -> None:
        """The times are known from elsewhere."""
        self.first_us, self.last_us = first_us, last_us


def removable(segments: Sequence[Segment], retention: Retention, now_us: int, floor: int) -> int:
    """How many of the oldest segments to remove. The last one, which is being written, and everything past `floor` stay.

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

"""When events that came back from a subscriber are delivered again."""

from __future__ import annotations

import heapq

import msgspec

from reknit.ledger import Series


class ScheduledRetry(msgspec.Struct, frozen=True, order=True):
    """Events `[start, stop)` are delivered again at `due`."""

    due: float
    order: int
    topic: str
    source: bytes
    start: int
    stop: int


class RetrySchedule:
    """The scheduled retries of one queue, the earliest first.

    >>> schedule, series = RetrySchedule(), ("plant/a", b"s")
    >>> schedule.add(series, 1, 2, due=2.0)
    >>> schedule.add(series, 2, 3, due=1.0)
    >>> schedule.next_due(), schedule.pop_due(0.5), schedule.pop_due(1.5).start
    (1.0, None, 2)
    """

    __slots__ = ("_added", "_heap")

    def __init__(self) -> None:
        self._heap: list[ScheduledRetry] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, series: Series, start: int, stop: int, due: float) -> None:
        """Deliver `[start, stop)` again at `due`."""
        self._added += 1
        heapq.heappush(self._heap, ScheduledRetry(due, self._added, *series, start, stop))

    def next_due(self) -> float | None:
        return self._heap[0].due if self._heap else None

    def pop_due(self, now: float) -> ScheduledRetry | None:
        """Take the earliest retry if it is due."""
        return heapq.heappop(self._heap) if self._heap and self._heap[0].due <= now else None

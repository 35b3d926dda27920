"""How many bytes the events of one series have, as they were delivered: by ranges of equal size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class EventSizes:
    """The sizes of a series' events. Ranges are half-open; consecutive events of equal size are one range.

    >>> sizes = EventSizes()
    >>> sizes.note(1, 11, 100.0)
    >>> sizes.note(11, 13, 1000.0)
    >>> sizes.total(9, 12), sizes.total(50, 60)
    (1200.0, 0.0)
    """

    __slots__ = ("_sizes", "_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._sizes: list[float] = []

    def note(self, start: int, stop: int, event_bytes: float) -> None:
        """Events `[start, stop)` have this size each. Those whose size is known keep it."""
        starts, stops, sizes = self._starts, self._stops, self._sizes
        if not stops or start > stops[-1] or (start == stops[-1] and event_bytes != sizes[-1]):
            starts.append(start)
            stops.append(stop)
            sizes.append(event_bytes)
        elif start == stops[-1]:
            stops[-1] = stop
        else:
            self._insert(start, stop, event_bytes)

    def _insert(self, start: int, stop: int, event_bytes: float) -> None:
        """The same for events before the last ones."""
        at = bisect_right(self._stops, start)
        while start < stop:
            known = self._starts[at] if at < len(self._starts) else stop
            if start < known:
                self._starts.insert(at, start)
                self._stops.insert(at, min(stop, known))
                self._sizes.insert(at, event_bytes)
                at += 1
            start = self._stops[at] if at < len(self._stops) else stop
            at += 1

    def total(self, start: int, stop: int) -> float:
        """The bytes of the events in `[start, stop)`, as far as their sizes are known."""
        low, high = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        parts = [
            (min(stop, self._stops[at]) - max(start, self._starts[at])) * self._sizes[at]
            for at in range(low, high)
        ]
        return sum(parts, 0.0)

    def forget_before(self, seq: int) -> None:
        """Everything before `seq` has ended."""
        ended = bisect_right(self._stops, seq)
        if ended:
            del self._starts[:ended], self._stops[:ended], self._sizes[:ended]

"""The events that a queue's cursor has passed and that have not ended: with the subscriber, or waiting here.

This is the only file that changes `in_flight` and `in_flight_bytes`, the number and the bytes of the events that are
with the subscriber:

call         from                to                  in_flight
deliver      not passed          with subscriber     + count
set_aside    not passed          waiting
resume       not known here      with subscriber     + count
redeliver    waiting             with subscriber     + count
give_back    with subscriber     waiting             - count
end          with subscriber     ended               - count
end          waiting             ended

Events that a subscriber still has from an earlier connection count as no bytes: nobody knows their size here.

Ranges are half-open. Two lists remember in which order events were passed, so that the floor (the position before
which everything has ended) moves with constant work per batch.
"""

from __future__ import annotations

from collections import deque
from math import inf

from reknit.ledger import Series
from reknit.protocol.queues.event_sizes import EventSizes
from reknit.seqset import Range, SeqSet

PassedRanges = deque[tuple[int, Series, int, int]]
"""(position, series, start, stop) in the order of delivery."""


class Unsettled:
    """The unsettled events of one queue.

    >>> unsettled, series = Unsettled(floor=0), ("plant/a", b"s")
    >>> unsettled.deliver(0, series, 1, 5)
    >>> unsettled.give_back(series, 2, 3)
    >>> unsettled.in_flight, unsettled.waiting_within(series, 1, 5)
    (3, [(2, 3)])
    >>> unsettled.end(series, 1, 4), unsettled.in_flight
    ([(1, 4)], 1)
    """

    __slots__ = (
        "_bytes_max",
        "_early",
        "_open",
        "_order",
        "_overdue",
        "_sizes",
        "_waiting",
        "floor",
        "has_strays",
        "in_flight",
        "in_flight_bytes",
    )  # fmt: skip

    def __init__(self, floor: int, bytes_max: float = inf) -> None:
        self.floor = floor
        """The journal's position before which everything has ended."""
        self.in_flight = 0
        """How many events are with the subscriber."""
        self.in_flight_bytes = 0.0
        """How many bytes they have, about."""
        self.has_strays = False
        """Whether the subscriber may still process events that are not with it any more, or have ended."""
        self._bytes_max = bytes_max
        self._sizes: dict[Series, EventSizes] = {}
        """The sizes of open events."""
        self._open: dict[Series, SeqSet] = {}
        self._waiting: dict[Series, SeqSet] = {}
        """Those of the open events that are not with the subscriber."""
        self._order: PassedRanges = deque()
        self._early: PassedRanges = deque()
        """The same for events that were passed before the cursor reached them."""
        self._overdue: dict[Series, SeqSet] = {}
        """Events whose ttl ran out while they were with the subscriber."""

    # -- transitions

    def deliver(self, position: int, series: Series, start: int, stop: int, event_bytes: float = 0.0) -> None:
        """Events of the batch at `position` go to the subscriber."""
        seqs = self._open.get(series)
        if seqs is None:
            seqs = self._open[series] = SeqSet()
            self._sizes[series] = EventSizes()
        seqs.add(start, stop)
        self._order.append((position, series, start, stop))
        self._sizes[series].note(start, stop, event_bytes)
        self.in_flight += stop - start
        self.in_flight_bytes += (stop - start) * event_bytes

    def set_aside(
        self,
        position: int,
        series: Series,
        start: int,
        stop: int,
        event_bytes: float = 0.0,
        is_early: bool = False,
    ) -> None:
        """Events of the batch at `position` wait here. `is_early`: the cursor has not reached that batch yet."""
        self._open.setdefault(series, SeqSet()).add(start, stop)
        self._sizes.setdefault(series, EventSizes()).note(start, stop, event_bytes)
        self._waiting.setdefault(series, SeqSet()).add(start, stop)
        (self._early if is_early else self._order).append((position, series, start, stop))

    def resume(self, series: Series, start: int, stop: int) -> None:
        """The subscriber still has these from an earlier connection."""
        seqs = self._open.setdefault(series, SeqSet())
        self._sizes.setdefault(series, EventSizes())
        self.in_flight += sum(high - low for low, high in seqs.missing(start, stop))
        seqs.add(start, stop)
        self._order.append((self.floor, series, start, stop))

    def redeliver(self, series: Series, start: int, stop: int) -> None:
        """Events that waited go to the subscriber."""
        self._stop_waiting(series, start, stop)
        self.in_flight += stop - start
        self.in_flight_bytes += self.size(series, start, stop)

    def give_back(self, series: Series, start: int, stop: int) -> None:
        """Events that were with the subscriber wait for another attempt."""
        self._waiting.setdefault(series, SeqSet()).add(start, stop)
        self._came_back(series, start, stop)

    def end(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events end. Returns the ranges that were open: only passed events can end, and only once."""
        seqs = self._open.get(series)
        if seqs is None:
            return []
        ranges = seqs.overlap(start, stop)
        waiting = self._waiting.get(series)
        for low, high in ranges:
            seqs.discard(low, high)
            for begin, end in [(low, high)] if waiting is None else waiting.missing(low, high):
                self._came_back(series, begin, end)
            if waiting is not None:
                waiting.discard(low, high)
        if waiting is not None and not waiting:
            del self._waiting[series]
        if series in self._overdue:
            self._overdue[series].discard(start, stop)
        if not seqs:
            del self._open[series], self._sizes[series]
        elif ranges:
            self._sizes[series].forget_before(seqs.first)
        return ranges

    def _came_back(self, series: Series, start: int, stop: int) -> None:
        """Events are no longer with the subscriber."""
        self.in_flight -= stop - start
        self.in_flight_bytes -= self.size(series, start, stop)
        if not self.in_flight:
            self.in_flight_bytes = 0.0  # sums of fractions are not exact

    def size(self, series: Series, start: int, stop: int) -> float:
        """The bytes of open events, about."""
        sizes = self._sizes.get(series)
        return 0.0 if sizes is None else sizes.total(start, stop)

    def _stop_waiting(self, series: Series, start: int, stop: int) -> None:
        seqs = self._waiting.get(series)
        if seqs is not None:
            seqs.discard(start, stop)
            if not seqs:
                del self._waiting[series]

    def expire(self, series: Series, start: int, stop: int) -> None:
        """The ttl of these ran out. The subscriber may finish those it has, but they are not tried again."""
        for low, high in self.in_flight_within(series, start, stop):
            self._overdue.setdefault(series, SeqSet()).add(low, high)

    def stray(self) -> None:
        """The subscriber may still process events that were taken from it: from now on nobody knows what it has."""
        self.has_strays = True

    def move_floor(self, lowest: int) -> int:
        """Move the floor up to `lowest`, or to the first batch with an open event."""
        for order in (self._order, self._early):
            while order:
                position, series, start, stop = order[0]
                seqs = self._open.get(series)
                if seqs is not None and seqs.overlap(start, stop):
                    lowest = min(lowest, position)
                    break
                order.popleft()
        self.floor = max(self.floor, lowest)
        return self.floor

    # -- questions

    @property
    def room(self) -> float:
        """How many bytes may still go to the subscriber before it settles some."""
        return self._bytes_max - self.in_flight_bytes

    @property
    def count(self) -> int:
        """How many events are open."""
        return sum(seqs.count for seqs in self._open.values())

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def has_early(self) -> bool:
        """Whether events that were passed early may still be open."""
        return bool(self._early)

    def is_waiting(self, series: Series) -> bool:
        """Whether some events of a series wait."""
        return series in self._waiting

    def open_of(self, series: Series) -> SeqSet:
        """A copy of a series' open seqs."""
        seqs = self._open.get(series)
        return SeqSet() if seqs is None else seqs.copy()

    def open_within(self, series: Series, start: int, stop: int) -> list[Range]:
        seqs = self._open.get(series)
        return [] if seqs is None else seqs.overlap(start, stop)

    def not_open_within(self, series: Series, start: int, stop: int) -> list[Range]:
        seqs = self._open.get(series)
        return [(start, stop)] if seqs is None else seqs.missing(start, stop)

    def waiting_within(self, series: Series, start: int, stop: int) -> list[Range]:
        seqs = self._waiting.get(series)
        return [] if seqs is None else seqs.overlap(start, stop)

    def in_flight_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are with the subscriber."""
        ranges = self.open_within(series, start, stop)
        waiting = self._waiting.get(series)
        if not waiting:
            return ranges
        return [part for low, high in ranges for part in waiting.missing(low, high)]

    def all_in_flight(self) -> dict[Series, SeqSet]:
        """All events that are with the subscriber."""
        waiting = self._waiting
        all_of = {
            s: seqs.difference(waiting[s]) if s in waiting else seqs.copy() for s, seqs in self._open.items()
        }
        return {series: seqs for series, seqs in all_of.items() if seqs}

    def overdue_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that expired while they were with the subscriber."""
        seqs = self._overdue.get(series)
        return [] if seqs is None else seqs.overlap(start, stop)

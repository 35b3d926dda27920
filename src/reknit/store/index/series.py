"""Where each series' events are: extents, which are coarse places in the log, and facts about the series as a whole.

A series is the events of one source on one topic. An extent says: events `[first, stop)` of a series lie, in order,
between two positions that are close to each other. Batches of other series may lie between them. There is one extent per
series and 128 KiB of log, not one per batch; a reader of an extent skips the batches of other series.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from reknit.batch_layout import Head
from reknit.entries import Entry, Removed
from reknit.ledger import Ledger
from reknit.seqset import SeqSet

EXTENT_BYTES: Final = 128 << 10
"""No batch is added to an extent that starts this far back."""


class Extent:
    """Events `[first, stop)` of a series, between `position` and `end`."""

    __slots__ = ("end", "first", "position", "series", "stop")

    def __init__(self, series: SeriesExtents, first: int, stop: int, position: int, end: int) -> None:
        self.series = series
        self.first, self.stop = first, stop
        self.position, self.end = position, end

    def __repr__(self) -> str:
        return f"Extent([{self.first}, {self.stop}) in [{self.position}, {self.end}))"


_first = attrgetter("first")
_position = attrgetter("position")
_stop = attrgetter("stop")
_order = attrgetter("first", "position")


class SeriesExtents:
    """The extents of one series in the log."""

    __slots__ = ("extents", "first_held", "in_order", "last", "number", "open", "source", "span_max", "topic")

    def __init__(self, number: int, topic: str, source: bytes) -> None:
        self.number = number
        self.topic, self.source = topic, source
        self.last = 0
        self.first_held = 1
        """Nothing from this seq on was removed."""
        self.span_max = 0
        """The length of the longest extent in seqs: how far to look back for one that reaches into a range."""
        self.extents: list[Extent] = []
        """The extents that are not in the index yet, in the order of the log."""
        self.in_order = True
        self.open: Extent | None = None

    def append(self, first: int, stop: int, position: int, end: int, segment_start: int) -> Extent | None:
        """Events `[first, stop)` were stored in `[position, end)`; returns the extent if that began a new one."""
        extent, begun = self.open, None
        if (
            extent is not None
            and extent.stop == first
            and position - extent.position < EXTENT_BYTES
            and extent.position >= segment_start
        ):
            extent.stop, extent.end = stop, end
        else:
            if self.extents and self.extents[-1].stop > first:
                self.in_order = False
            extent = begun = self.open = Extent(self, first, stop, position, end)
            self.extents.append(extent)
        self.span_max = max(self.span_max, stop - extent.first)
        self.last = max(self.last, stop - 1)
        return begun

    def seal(self) -> None:
        """The next batch begins a new extent."""
        self.open = None

    def drop(self, count: int) -> list[Extent]:
        """Forget the oldest extents; returns them."""
        dropped = self.extents[:count]
        del self.extents[:count]
        if not self.in_order:  # the extent that was out of order may be gone now
            self.in_order = all(a.stop <= b.first for a, b in pairwise(self.extents))
        return dropped

    def removed_to(self, last: int) -> None:
        """Events up to and including `last` are no longer held."""
        self.first_held = max(self.first_held, last + 1)
        self.last = max(self.last, last)

    def restore(self, first_held: int, last: int, span_max: int = 0) -> None:
        """Take over the values of an index."""
        self.first_held, self.last, self.span_max = first_held, last, span_max

    def overlapping(self, start: int, stop: int) -> list[Extent]:
        """The extents in memory that hold any of `[start, stop)`, in seq order."""
        extents = self.extents
        if not self.in_order:
            return sorted((one for one in extents if one.first < stop and one.stop > start), key=_order)
        return extents[bisect_right(extents, start, key=_stop) : bisect_left(extents, stop, key=_first)]


class SeriesTable:
    """All series of a journal, by topic and source."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_topic: dict[str, dict[bytes, SeriesExtents]] = {}
        self._by_number: dict[int, SeriesExtents] = {}
        self._next_number = 1
        self.fresh: list[Extent] = []
        """The extents of all series that are not in the index yet, in the order of the log."""
        self.segment_start = 0
        """No extent spans two segments, so that it is removed with its segment."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[SeriesExtents]:
        return iter(self._by_number.values())

    def topics(self) -> list[str]:
        """The topics that had an event."""
        return sorted({series.topic for series in self if series.last})

    def of_topic(self, topic: str) -> dict[bytes, SeriesExtents]:
        return self._by_topic.get(topic, {})

    def get(self, topic: str, source: bytes) -> SeriesExtents | None:
        by_source = self._by_topic.get(topic)
        return None if by_source is None else by_source.get(source)

    def numbered(self, number: int) -> SeriesExtents:
        """The series that has this number in the index."""
        return self._by_number[number]

    def make(self, topic: str, source: bytes, number: int | None = None) -> SeriesExtents:
        """The series, created if it does not exist; `number` is its number in the index, if it has one."""
        by_source = self._by_topic.setdefault(topic, {})
        series = by_source.get(source)
        if series is None:
            if number is None:
                number = self._next_number
            self._next_number = max(self._next_number, number + 1)
            series = by_source[source] = self._by_number[number] = SeriesExtents(number, topic, source)
        return series

    def emptied(self, ledger: Ledger) -> SeriesTable:
        """The same series with no event held; which events were removed stays known."""
        new = SeriesTable(ledger)
        for series in self:
            new.make(series.topic, series.source, series.number).restore(
                series.first_held, series.first_held - 1
            )
        return new

    def begin_segment(self, position: int) -> None:
        """A segment begins here: the next batch of every series begins a new extent."""
        self.segment_start = position

    def add(self, position: int, heads: Iterable[Head]) -> tuple[list[Entry], int]:
        """Index batches that lie back to back from `position` on, and enter them into the ledger.

        Returns their entries and the number of their events.
        """
        entries: list[Entry] = []
        append = entries.append
        source, topic, first, stop, low, events = b"", "", 0, 0, position, 0
        for head in heads:
            # Batches of one series mostly follow each other: they are entered as one range.
            if (
                head.first != stop
                or head.source != source
                or head.topic != topic
                or position - low > EXTENT_BYTES
            ):
                if stop:
                    self.put(topic, source, first, stop, low, position)
                source, topic, first, low = head.source, head.topic, head.first, position
            append(Entry(position, head))
            count = head.count
            stop = head.first + count
            events += count
            position += head.length
        if stop:
            self.put(topic, source, first, stop, low, position)
        return entries, events

    def put(self, topic: str, source: bytes, first: int, stop: int, position: int, end: int) -> None:
        """Events `[first, stop)` of a series were stored in `[position, end)`."""
        self._ledger.publish(topic, source, first, stop)
        series = self.get(topic, source) or self.make(topic, source)
        begun = series.append(first, stop, position, end, self.segment_start)
        if begun is not None:
            self.fresh.append(begun)

    def seal(self) -> list[Extent]:
        """The fresh extents. They do not change any more; the next batches open new ones."""
        for extent in self.fresh:
            extent.series.seal()
        return self.fresh.copy()

    def saved(self, extents: Sequence[Extent]) -> None:
        """The oldest fresh extents are in the index now and leave memory."""
        del self.fresh[: len(extents)]
        for series, count in Counter(extent.series for extent in extents).items():
            series.drop(count)  # each series has them in the same order, so these are its oldest

    def drop_fresh(self) -> None:
        """There is no index to save fresh extents to: only the series keep them."""
        self.fresh.clear()

    def drop_before(self, position: int) -> list[Extent]:
        """Forget the extents in memory that start before a position; returns them."""
        dropped: list[Extent] = []
        for series in self:
            count = bisect_left(series.extents, position, key=_position)
            if count:
                dropped += series.drop(count)
        return dropped


def remove(extents: Iterable[Extent]) -> list[Removed]:
    """Extents were removed: advance their series' first held seq. Returns the removed events, in merged ranges."""
    by_series: dict[int, tuple[SeriesExtents, SeqSet]] = {}
    for extent in extents:
        _, seqs = by_series.setdefault(extent.series.number, (extent.series, SeqSet()))
        seqs.add(extent.first, extent.stop)
    removed: list[Removed] = []
    for series, seqs in by_series.values():
        series.removed_to(seqs.last)
        removed += [Removed(series.topic, series.source, *bounds) for bounds in seqs.ranges()]
    return removed

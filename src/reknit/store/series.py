"""Where each stream's events are: extents, coarse places in the log, and what is known of the stream as a
whole.

An extent says: events `[first, stop)` of a stream lie, in order, between two positions that are close to each
other. Other streams' batches may lie between them. There is one extent per stream and 128 KiB of log, not one
per batch: what is found in it is told apart by reading it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from reknit.batch import Head
from reknit.entries import Entry
from reknit.ledger import Ledger

EXTENT_BYTES: Final = 128 << 10
"""No batch is added to an extent that starts so far back."""


class Extent:
    """Events `[first, stop)` of a stream, between `position` and `end`."""

    __slots__ = ("end", "first", "position", "stop", "stream")

    def __init__(self, stream: Stream, first: int, stop: int, position: int, end: int) -> None:
        self.stream = stream
        self.first, self.stop = first, stop
        self.position, self.end = position, end

    def __repr__(self) -> str:
        return f"Extent([{self.first}, {self.stop}) in [{self.position}, {self.end}))"


_first = attrgetter("first")
_position = attrgetter("position")
_stop = attrgetter("stop")
_order = attrgetter("first", "position")


class Stream:
    """What is known of one source on one topic."""

    __slots__ = ("extents", "first_held", "in_order", "last", "number", "open", "source", "span_max", "topic")

    def __init__(self, number: int, topic: str, source: bytes) -> None:
        self.number = number
        self.topic, self.source = topic, source
        self.last = 0
        self.first_held = 1
        """Nothing from this seq on was removed."""
        self.span_max = 0
        """The longest extent there is, in seqs: how far to look back for one that reaches into a range."""
        self.extents: list[Extent] = []
        """Those that are not in the index yet, in the order in which they were kept."""
        self.in_order = True
        self.open: Extent | None = None

    def check_order(self) -> None:
        """After extents went: one that was out of order may have gone with them."""
        if not self.in_order:
            self.in_order = all(a.stop <= b.first for a, b in pairwise(self.extents))

    def overlapping(self, start: int, stop: int) -> list[Extent]:
        """The extents in memory that hold any of `[start, stop)`, in seq order."""
        extents = self.extents
        if not self.in_order:
            return sorted((one for one in extents if one.first < stop and one.stop > start), key=_order)
        return extents[bisect_right(extents, start, key=_stop) : bisect_left(extents, stop, key=_first)]


class Streams:
    """All streams of a journal, by topic and source."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_topic: dict[str, dict[bytes, Stream]] = {}
        self._by_number: dict[int, Stream] = {}
        self._next_number = 1
        self.fresh: list[Extent] = []
        """The extents that are not in the index yet, of all streams, in the order in which they were kept."""
        self.segment_start = 0
        """No extent reaches from one segment into the next, so that each goes with its segment."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._by_number.values())

    def topics(self) -> list[str]:
        """Those that had an event."""
        return sorted({stream.topic for stream in self if stream.last})

    def of_topic(self, topic: str) -> dict[bytes, Stream]:
        return self._by_topic.get(topic, {})

    def get(self, topic: str, source: bytes) -> Stream | None:
        by_source = self._by_topic.get(topic)
        return None if by_source is None else by_source.get(source)

    def numbered(self, number: int) -> Stream:
        """The stream that has this number in the index."""
        return self._by_number[number]

    def make(self, topic: str, source: bytes, number: int | None = None) -> Stream:
        """The stream, which is made if there is none; `number` is its number in the index, if it has one."""
        by_source = self._by_topic.setdefault(topic, {})
        stream = by_source.get(source)
        if stream is None:
            if number is None:
                number = self._next_number
            self._next_number = max(self._next_number, number + 1)
            stream = by_source[source] = self._by_number[number] = Stream(number, topic, source)
        return stream

    def emptied(self, ledger: Ledger) -> Streams:
        """The same streams with no event held; what was removed stays known."""
        new = Streams(ledger)
        for stream in self:
            one = new.make(stream.topic, stream.source, stream.number)
            one.first_held, one.last = stream.first_held, stream.first_held - 1
        return new

    def note(self, position: int, heads: Iterable[Head]) -> tuple[list[Entry], int]:
        """Batches were kept back to back from `position` on: index and book them.

        Gives their entries and events.
        """
        entries: list[Entry] = []
        add = entries.append
        source, topic, first, stop, low, events = b"", "", 0, 0, position, 0
        for head in heads:
            # Batches of one stream mostly follow each other: they are booked as one range.
            if (
                head.first != stop
                or head.source != source
                or head.topic != topic
                or position - low > EXTENT_BYTES
            ):
                if stop:
                    self.put(topic, source, first, stop, low, position)
                source, topic, first, low = head.source, head.topic, head.first, position
            add(Entry(position, head))
            count = head.count
            stop = head.first + count
            events += count
            position += head.length
        if stop:
            self.put(topic, source, first, stop, low, position)
        return entries, events

    def put(self, topic: str, source: bytes, first: int, stop: int, position: int, end: int) -> None:
        """Events `[first, stop)` of a stream were kept in `[position, end)`."""
        self._ledger.publish(topic, source, first, stop)
        stream = self.get(topic, source) or self.make(topic, source)
        extent = stream.open
        if (
            extent is not None
            and extent.stop == first
            and position - extent.position < EXTENT_BYTES
            and extent.position >= self.segment_start
        ):
            extent.stop, extent.end = stop, end
        else:
            if stream.extents and stream.extents[-1].stop > first:
                stream.in_order = False
            extent = stream.open = Extent(stream, first, stop, position, end)
            stream.extents.append(extent)
            self.fresh.append(extent)
        stream.span_max = max(stream.span_max, stop - extent.first)
        stream.last = max(stream.last, stop - 1)

    def seal(self) -> list[Extent]:
        """The fresh extents, from now on unchanged; what comes next opens new ones."""
        for extent in self.fresh:
            extent.stream.open = None
        return self.fresh.copy()

    def saved(self, extents: Sequence[Extent]) -> None:
        """The first of the fresh ones, `extents`, are in the index now and need no place in memory."""
        del self.fresh[: len(extents)]
        for stream, count in Counter(extent.stream for extent in extents).items():
            del stream.extents[:count]  # each stream's are in the same order, so these are its oldest
            stream.check_order()

    def drop_before(self, position: int) -> list[Extent]:
        """Forget the extents in memory that start before a position; gives them."""
        dropped: list[Extent] = []
        for stream in self:
            gone = bisect_left(stream.extents, position, key=_position)
            if gone:
                dropped += stream.extents[:gone]
                del stream.extents[:gone]
                stream.check_order()
        return dropped

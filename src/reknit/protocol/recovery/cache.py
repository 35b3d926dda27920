"""The cache: holds the newest events of each stream and gives back what somebody missed.

A cache may stand anywhere: beside a publisher, in a client, on a node. Per stream it is bounded by events, bytes and
age. What it let go is known (`floor`), so that nobody brings it back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from reknit.batch import SOURCE_BYTES, Batch
from reknit.ledger import Stream
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern
from reknit.wire.recovery import Recover, Span

NO_SOURCE: Final = bytes(SOURCE_BYTES)
"""The source of events without source information: nobody can tell what is missing between them."""
RANGES_MAX: Final = 4096
"""So many ranges are looked at in one question; the rest is left uncovered and is asked for again."""

_first = attrgetter("head.first")
_stop = attrgetter("stop")


class Bounds(msgspec.Struct, frozen=True):
    """How much to hold of each stream; 0 is without limit. The newest batch is always held."""

    events_max: int = 0
    bytes_max: int = 0
    age_s_max: float = 0.0


class Keeper(Protocol):
    """Who can give back events: a cache in memory, or a node's journal."""

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """What is held of `[start, stop)`, cut to it, in seq order; with at least one batch, about `bytes_max`."""
        ...

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """What is held of every stream that matches, in order of topic and source."""
        ...


def answer(keeper: Keeper, request: Recover) -> tuple[list[Batch], list[Range]]:
    """What is held of the ranges asked for, and how much of them that speaks for (the rest did not fit).

    >>> cache = Cache(Pattern("plant/**"))
    >>> cache.put(Batch.build(b"s" * 16, "plant/a", 2, [b"x", b"y"], 0), 0)
    True
    >>> batches, covered = answer(cache, Recover(1, "plant/a", b"s" * 16, [(1, 9)], 1000))
    >>> [(batch.first, batch.stop) for batch in batches], covered
    ([(2, 4)], [(1, 9)])
    """
    found: list[Batch] = []
    covered: list[Range] = []
    room = request.bytes_max
    for start, stop in _sound(request.ranges):
        batches = keeper.find(request.topic, request.source, start, stop, room)
        room -= sum(batch.head.length for batch in batches)
        found += batches
        reached = batches[-1].stop if room <= 0 and batches else stop
        covered.append((start, reached))
        if room <= 0:
            break
    return found, covered


def _sound(ranges: Iterable[Range]) -> list[Range]:
    """What came from a peer, in order and without what is no range."""
    return sorted((start, stop) for start, stop in ranges if 0 < start < stop)[:RANGES_MAX]


class Shelf:
    """The events that are held of one stream."""

    __slots__ = ("batches", "bytes", "floor", "held", "last")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        """In seq order, disjoint. The first may reach below the floor."""
        self.held = SeqSet()
        self.bytes = 0
        self.floor = 1
        """Everything below was let go."""
        self.last = 0
        """The last seq that was ever here."""

    def put(self, batch: Batch) -> bool:
        """Take what is not held yet; False if there was nothing new."""
        if batch.first > self.last:
            self._append(batch)
            return True
        start = max(batch.first, self.floor)
        parts = self.held.missing(start, batch.stop) if start < batch.stop else []
        for low, high in parts:
            part = batch.cut(low, high)
            self.batches.insert(bisect_left(self.batches, part.first, key=_first), part)
            self._note(part)
        return bool(parts)

    def _append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._note(batch)

    def _note(self, batch: Batch) -> None:
        self.held.add(batch.first, batch.stop)
        self.bytes += batch.head.length
        self.last = max(self.last, batch.stop - 1)

    def bound(self, bounds: Bounds, now_us: int) -> None:
        """Let go of the oldest until the bounds hold."""
        if 0 < bounds.events_max < self.held.count:
            self._let_go_events(self.held.count - bounds.events_max)
        oldest_us = now_us - int(bounds.age_s_max * 1e6) if bounds.age_s_max else 0
        gone = 0
        for batch in self.batches:
            is_over = 0 < bounds.bytes_max < self.bytes and gone < len(self.batches) - 1
            if not is_over and batch.stop > self.floor and batch.time_us >= oldest_us:
                break
            self.bytes -= batch.head.length
            self._raise_floor(batch.stop)
            gone += 1
        if gone:
            del self.batches[:gone]

    def _let_go_events(self, count: int) -> None:
        while count > 0:
            start = self.held.first
            stop = min(self.held.first_missing(start), start + count)
            self._raise_floor(stop)
            count -= stop - start

    def _raise_floor(self, seq: int) -> None:
        if seq > self.floor:
            self.held.discard(0, seq)
            self.floor = seq

    def find(self, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """What is held of `[start, stop)`."""
        found: list[Batch] = []
        start = max(start, self.floor)
        for batch in self.batches[bisect_right(self.batches, start, key=_stop) :]:
            if batch.first >= stop or start >= stop or bytes_max <= 0:
                break
            found.append(batch.cut(start, stop))
            bytes_max -= batch.head.length
        return found

    def since(self, oldest_us: int) -> list[Range]:
        """The ranges that are held and no older."""
        young = self.held.copy()
        old = 0
        for batch in self.batches:
            if batch.time_us >= oldest_us:
                break
            old = batch.stop
        young.discard(0, old)
        return young.ranges()


class Cache:
    """Events of all streams that match a pattern, in memory.

    `put` and everything that looks at ages gets the time of day in microseconds: a cache has no clock.
    """

    def __init__(
        self, pattern: Pattern, bounds: Bounds | None = None, streams_max: int = 1_000_000, now_us: int = 0
    ) -> None:
        self.pattern = pattern
        self.bounds = bounds or Bounds()
        self.now_us = now_us
        self._streams_max = streams_max
        self._shelves: dict[Stream, Shelf] = {}

    def put(self, batch: Batch, now_us: int) -> bool:
        """Hold these events; False where there is nothing to hold: no source, no match, known, too many streams."""
        self.now_us = now_us
        stream = (batch.topic, batch.source)
        shelf = self._shelves.get(stream)
        if shelf is None:
            is_ours = batch.source != NO_SOURCE and self.pattern.matches(batch.topic)
            if not is_ours or len(self._shelves) >= self._streams_max:
                return False
            shelf = self._shelves[stream] = Shelf()
        is_new = shelf.put(batch)
        shelf.bound(self.bounds, now_us)
        return is_new

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """What is held of `[start, stop)`, cut to it, in seq order."""
        shelf = self._fresh((topic, source))
        return [] if shelf is None else shelf.find(start, stop, bytes_max)

    def recover(self, pattern: Pattern, count: int = 0, age_s: float = 0.0) -> list[Batch]:
        """By pattern, over all sources: everything, or the last `count` of each, or what is no older than `age_s`."""
        found: list[Batch] = []
        for span in self.survey(pattern, age_s):
            shelf = self._shelves[span.topic, span.source]
            low = (
                max(span.ranges[0][0], span.last + 1 - count if count else 1)
                if span.ranges
                else span.last + 1
            )
            found += shelf.find(low, span.last + 1, shelf.bytes)
        return found

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """What is held of every stream that matches."""
        oldest_us = self.now_us - int(age_s * 1e6) if age_s else 0
        spans: list[Span] = []
        for stream in sorted(self._shelves):
            if pattern.matches(stream[0]):
                shelf = self._fresh(stream)
                assert shelf is not None
                spans.append(Span(*stream, shelf.since(oldest_us), shelf.last))
        return spans

    def holdings(self, pattern: Pattern) -> tuple[dict[Stream, SeqSet], dict[Stream, int]]:
        """What is held, and below which seq everything was let go: the two sides of an alignment."""
        streams = [stream for stream in self._shelves if pattern.matches(stream[0])]
        held = {stream: self._shelves[stream].held.copy() for stream in streams}
        return held, {stream: self._shelves[stream].floor for stream in streams}

    def stored(self, stream: Stream) -> int:
        """The last seq up to which everything was stored here, from the first that came on."""
        shelf = self._shelves.get(stream)
        return 0 if shelf is None or not shelf.held else shelf.held.first_missing(shelf.held.first) - 1

    def forget(self, stream: Stream) -> None:
        """The stream is of no interest any more: state goes with its publisher."""
        self._shelves.pop(stream, None)

    @property
    def bytes(self) -> int:
        """What is held, in bytes of batches."""
        return sum(shelf.bytes for shelf in self._shelves.values())

    def _fresh(self, stream: Stream) -> Shelf | None:
        shelf = self._shelves.get(stream)
        if shelf is not None and self.bounds.age_s_max:
            shelf.bound(self.bounds, self.now_us)
        return shelf


def total(batches: Sequence[Batch]) -> int:
    """The bytes of some batches."""
    return sum(batch.head.length for batch in batches)

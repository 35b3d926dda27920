"""A cache: it holds the newest events of each series, and answers subscribers that missed some.

A cache can be anywhere: beside a publisher, in a client, on a node. Each series is bounded by events, bytes and age.
The cache knows what it evicted (`floor`), so an alignment does not bring it back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from reknit.batch import SOURCE_BYTES, Batch
from reknit.ledger import Series
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern
from reknit.wire.recovery import Recover, Span

NO_SOURCE: Final = bytes(SOURCE_BYTES)
"""The source of events without source information: gaps between them can't be known."""
RANGES_MAX: Final = 4096
"""How many ranges of one request are answered. The rest is not covered, and is requested again."""

_first = attrgetter("head.first")
_stop = attrgetter("stop")


class CacheBounds(msgspec.Struct, frozen=True):
    """How much to hold of each series; 0 means no limit. The newest batch is always held."""

    events_max: int = 0
    bytes_max: int = 0
    age_s_max: float = 0.0


class EventHolder(Protocol):
    """Something that holds events and can return them: a cache in memory, or a node's journal."""

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """The events held of `[start, stop)`, in seq order: about `bytes_max`, and at least one batch.

        Less than `bytes_max` is everything that is held. Otherwise more may be held behind the last event.
        """
        ...

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """The ranges held of every series that matches, in order of topic and source."""
        ...


def answer(holder: EventHolder, request: Recover) -> tuple[list[Batch], list[Range]]:
    """The events held of the ranges that were requested, and the ranges that this covers (the rest did not fit).

    >>> cache = MemoryCache(Pattern("plant/**"))
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
        batches = holder.find(request.topic, request.source, start, stop, room)
        room -= sum(batch.head.length for batch in batches)
        found += batches
        reached = batches[-1].stop if room <= 0 and batches else stop
        covered.append((start, reached))
        if room <= 0:
            break
    return found, covered


def _sound(ranges: Iterable[Range]) -> list[Range]:
    """The valid ranges among those that a peer sent, in order."""
    return sorted((start, stop) for start, stop in ranges if 0 < start < stop)[:RANGES_MAX]


class CachedSeries:
    """The events held of one series."""

    __slots__ = ("batches", "bytes", "floor", "held", "last")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        """In seq order, disjoint. The first one may reach below the floor."""
        self.held = SeqSet()
        self.bytes = 0
        self.floor = 1
        """Everything below was evicted."""
        self.last = 0
        """The last seq that was ever held."""

    def put(self, batch: Batch) -> bool:
        """Hold the new events of a batch. False if there are none."""
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

    def bound(self, bounds: CacheBounds, now_us: int) -> None:
        """Evict the oldest events until the bounds hold."""
        if 0 < bounds.events_max < self.held.count:
            self._evict_events(self.held.count - bounds.events_max)
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

    def _evict_events(self, count: int) -> None:
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
        """The events held of `[start, stop)`."""
        found: list[Batch] = []
        start = max(start, self.floor)
        for batch in self.batches[bisect_right(self.batches, start, key=_stop) :]:
            if batch.first >= stop or start >= stop or bytes_max <= 0:
                break
            found.append(batch.cut(start, stop))
            bytes_max -= found[-1].head.length
        return found

    def since(self, oldest_us: int) -> list[Range]:
        """The ranges held that are no older than this."""
        young = self.held.copy()
        old = 0
        for batch in self.batches:
            if batch.time_us >= oldest_us:
                break
            old = batch.stop
        young.discard(0, old)
        return young.ranges()


class MemoryCache:
    """The events of all series that match a pattern, in memory.

    A cache has no clock: `put` gets the time of day in microseconds.
    """

    def __init__(
        self,
        pattern: Pattern,
        bounds: CacheBounds | None = None,
        series_max: int = 1_000_000,
        now_us: int = 0,
    ) -> None:
        self.pattern = pattern
        self.bounds = bounds or CacheBounds()
        self.now_us = now_us
        self._series_max = series_max
        self._by_series: dict[Series, CachedSeries] = {}

    def put(self, batch: Batch, now_us: int) -> bool:
        """Hold these events. False if there is nothing to hold: no source, no match, known, or too many series."""
        self.now_us = now_us
        series = (batch.topic, batch.source)
        cached = self._by_series.get(series)
        if cached is None:
            is_ours = batch.source != NO_SOURCE and self.pattern.matches(batch.topic)
            if not is_ours or len(self._by_series) >= self._series_max:
                return False
            cached = self._by_series[series] = CachedSeries()
        is_new = cached.put(batch)
        cached.bound(self.bounds, now_us)
        return is_new

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """The events held of `[start, stop)`, in seq order."""
        cached = self._fresh((topic, source))
        return [] if cached is None else cached.find(start, stop, bytes_max)

    def recover(self, pattern: Pattern, count: int = 0, age_s: float = 0.0) -> list[Batch]:
        """The events of all series that match: all, or the last `count` of each, or those no older than `age_s`."""
        found: list[Batch] = []
        for span in self.survey(pattern, age_s):
            cached = self._by_series[span.topic, span.source]
            low = (
                max(span.ranges[0][0], span.last + 1 - count if count else 1)
                if span.ranges
                else span.last + 1
            )
            found += cached.find(low, span.last + 1, cached.bytes)
        return found

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """The ranges held of every series that matches."""
        oldest_us = self.now_us - int(age_s * 1e6) if age_s else 0
        spans: list[Span] = []
        for series in sorted(self._by_series):
            if pattern.matches(series[0]):
                cached = self._fresh(series)
                assert cached is not None
                spans.append(Span(*series, cached.since(oldest_us), cached.last))
        return spans

    def holdings(self, pattern: Pattern) -> tuple[dict[Series, SeqSet], dict[Series, int]]:
        """The ranges held, and the seq below which everything was evicted: the input of an alignment."""
        chosen = {series: one for series, one in self._by_series.items() if pattern.matches(series[0])}
        held = {series: one.held.copy() for series, one in chosen.items()}
        return held, {series: one.floor for series, one in chosen.items()}

    def stored(self, series: Series) -> int:
        """The last seq before the first gap, counted from the first event that is held."""
        cached = self._by_series.get(series)
        return 0 if cached is None or not cached.held else cached.held.first_missing(cached.held.first) - 1

    def forget(self, series: Series) -> None:
        """Forget a series, when its publisher is gone."""
        self._by_series.pop(series, None)

    @property
    def bytes(self) -> int:
        """The size of all batches that are held."""
        return sum(cached.bytes for cached in self._by_series.values())

    def _fresh(self, series: Series) -> CachedSeries | None:
        cached = self._by_series.get(series)
        if cached is not None and self.bounds.age_s_max:
            cached.bound(self.bounds, self.now_us)
        return cached


def total(batches: Sequence[Batch]) -> int:
    """The size of some batches."""
    return sum(batch.head.length for batch in batches)

"""Search the caches for missing ranges: the nearest cache first, then the next one for the rest.

A cache answers with what it holds, and so denies what it does not hold. A silent cache is passed over, and asked
again after a back-off; so is one whose answers neither bring nor deny anything. A range is given up when every cache
has denied it, or when it has waited for such caches for too long.

    want, want_all      AskCache for what is not searched for yet
    found               nobody is asked for it any more
    answered            what the cache did not have: AskCache for the next one; after the last one: Missing
                        an answer without events or denials: the next one, and this one after a back-off
    heard               the cache sent events that are searched for: its timeout starts again
    unreachable         others are asked; the cache is asked again after a back-off
    reachable           the cache is asked again, also for what it denied
    pause, resume       no AskCache meanwhile
    tick                silent caches are unreachable; back-offs and patience end

Answers under a number that is not open are ignored: they come late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from reknit.ledger import Series
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.series_search import RETRY_S_MAX, RETRY_S_MIN, SeriesSearch
from reknit.seqset import Range, SeqSet


class SearchSettings(msgspec.Struct, frozen=True):
    """How long a search waits for caches, and how much it asks for."""

    timeout_s: float = 1.0
    patience_s: float = 30.0
    bytes_max: int = 4 << 20
    again_s: float = 0.0
    """Events that all caches deny are requested again after this: they may be on their way. 0: lost at once."""


class AskCache(msgspec.Struct, frozen=True):
    """Ask a cache for these ranges; its answers carry this number."""

    cache: Peer
    number: int
    series: Series
    ranges: list[Range]
    bytes_max: int


class Missing(msgspec.Struct, frozen=True):
    """No cache has these events."""

    series: Series
    start: int
    stop: int


Effect = AskCache | Missing


@dataclass(slots=True)
class _Request:
    """A request to a cache that is not answered completely."""

    cache: Peer
    series: Series
    left: SeqSet
    deadline: float
    begun: int
    """The progress of the search when the request was made…"""
    seen: int
    """…and when the cache was last given more time."""

    def extend(self, progress: int, deadline: float) -> bool:
        """Wait longer for a cache that sends events, or denies them. False if it did neither since the last time."""
        if progress == self.seen:
            return False
        self.seen, self.deadline = progress, deadline
        return True


class Search:
    """Finds ranges in caches, which are given in order of nearness.

    >>> search = Search(["edge", "core"])
    >>> search.want(("plant/a", b"s" * 16), 3, 7, now=0.0)
    >>> [ask] = search.take_effects()
    >>> ask.cache, ask.ranges
    ('edge', [(3, 7)])
    >>> search.found(("plant/a", b"s" * 16), 3, 5)
    >>> search.answered(ask.number, [(3, 7)], True, now=0.1)
    >>> [(ask.cache, ask.ranges) for ask in search.take_effects()]
    [('core', [(5, 7)])]
    """

    def __init__(self, caches: Sequence[Peer] = (), asking: SearchSettings | None = None) -> None:
        self.caches = list(caches)
        self._is_paused = False
        """No new requests while there is no room for the events."""
        self._settings = asking or SearchSettings()
        self._wanted: dict[Series, SeriesSearch] = {}
        self._requests: dict[int, _Request] = {}
        self._away: dict[Peer, tuple[float, float]] = {}
        """By silent cache: when it is asked again, and the next back-off."""
        self._number = 0
        self._effects: list[Effect] = []

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def wanted(self, series: Series) -> SeqSet:
        """The events of a series that are still searched for."""
        wanted = self._wanted.get(series)
        return SeqSet() if wanted is None else wanted.seqs

    # -- missing events

    def want(self, series: Series, start: int, stop: int, now: float) -> None:
        """Search for the part of `[start, stop)` that is not searched for yet."""
        self.want_all(series, [(start, stop)], now)

    def want_all(self, series: Series, ranges: Sequence[Range], now: float) -> None:
        """Search for several ranges of a series at once: they go into one request."""
        wanted = self._wanted.setdefault(series, SeriesSearch())
        wanted.want(ranges, now + self._settings.patience_s)
        self._plan(series, wanted, now)

    def found(self, series: Series, start: int, stop: int) -> None:
        """These events came, from anywhere: no cache needs to be asked any more."""
        wanted = self._wanted.get(series)
        if wanted is not None:
            wanted.found(start, stop)
            if not wanted.seqs:
                self._forget(series)

    def forget(self, series: Series) -> None:
        """Search for nothing of this series any more."""
        if series in self._wanted:
            self._forget(series)

    def _forget(self, series: Series) -> None:
        del self._wanted[series]
        self._requests = {number: one for number, one in self._requests.items() if one.series != series}

    # -- answers from caches

    def answered(self, number: int, covered: Sequence[Range], is_last: bool, now: float) -> None:
        """A cache answered for the ranges `covered`; the events that it has were `found` before."""
        request = self._requests.get(number)
        if request is None:
            return
        wanted = self._wanted[request.series]
        for start, stop in covered:
            for low, high in request.left.overlap(start, stop) if 0 < start < stop else ():
                request.left.discard(low, high)
                wanted.answered(request.cache, low, high)
        if request.extend(wanted.progress, now + self._settings.timeout_s):
            self._away.pop(request.cache, None)
            wanted.answered_something(request.cache)
        if is_last:
            self._end(number)
            if wanted.progress == request.begun:
                wanted.answered_nothing(request.cache, now)
        self._plan(request.series, wanted, now)

    def heard(self, cache: Peer, now: float) -> None:
        """Part of an answer came, and its events were `found`: the cache is sending, and its other answers follow."""
        theirs = [request for request in self._requests.values() if request.cache == cache]
        deadline = now + self._settings.timeout_s
        has_progressed = [one.extend(self._wanted[one.series].progress, deadline) for one in theirs]
        if any(has_progressed):
            for request in theirs:
                request.deadline = deadline

    def _end(self, number: int) -> None:
        request = self._requests.pop(number)
        self._wanted[request.series].unanswered(request.left.ranges())

    def unreachable(self, cache: Peer, now: float) -> None:
        """A cache is silent, or its connection is lost: others are asked meanwhile."""
        wait_s = self._away.get(cache, (0.0, RETRY_S_MIN))[1]
        self._away[cache] = (now + wait_s, min(wait_s * 2, RETRY_S_MAX))
        self._end_all(cache)
        self._plan_all(now)

    def _end_all(self, cache: Peer) -> None:
        for number in [number for number, one in self._requests.items() if one.cache == cache]:
            self._end(number)

    def reachable(self, cache: Peer, now: float) -> None:
        """A cache is there again. It may have been filled meanwhile: it is asked again for the events that it denied."""
        self._away.pop(cache, None)
        self._end_all(cache)
        for wanted in self._wanted.values():
            wanted.forget_denials(cache)
        self._plan_all(now)

    def pause(self, is_paused: bool) -> bool:
        """Make no new requests while paused. True if this ends a pause: call `resume`."""
        was_paused, self._is_paused = self._is_paused, is_paused
        return was_paused and not is_paused

    def resume(self, now: float) -> None:
        """There is room again for the events."""
        self._is_paused = False
        self._plan_all(now)

    # -- time

    def tick(self, now: float) -> None:
        """Pass over caches that were silent for too long, ask others again, and give up ranges past their patience."""
        for cache in dict.fromkeys(one.cache for one in self._requests.values() if one.deadline <= now):
            self.unreachable(cache, now)
        self._plan_all(now)

    def next_deadline(self) -> float | None:
        """When a request times out, a cache is asked again, or patience ends."""
        if not self._wanted:
            return None
        due = [one.deadline for one in self._requests.values()]
        if not self._is_paused:
            due += [at for wanted in self._wanted.values() for at in wanted.deadlines()]
        return min(due, default=None)

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- which cache to ask

    def _plan_all(self, now: float) -> None:
        for series, wanted in list(self._wanted.items()):
            self._plan(series, wanted, now)

    def _plan(self, series: Series, wanted: SeriesSearch, now: float) -> None:
        if self._is_paused or series not in self._wanted:
            return
        rest, silent = wanted.start_plan(now), SeqSet()
        for cache in self.caches:
            if not rest:
                return
            part = wanted.not_denied(cache, rest)
            if not part:
                continue
            retry_at = max(self._away.get(cache, (now, 0.0))[0], wanted.backed_off_until(cache))
            if retry_at > now:
                silent = silent.union(part)
                wanted.retry_at(retry_at)
                continue
            rest = rest.difference(part)
            self._ask(cache, series, wanted, part, now)
        again_s = self._settings.again_s if self.caches else 0.0
        self._effects += [Missing(series, *bounds) for bounds in wanted.give_up(rest, silent, again_s, now)]
        if not wanted.seqs:
            self._forget(series)

    def _ask(self, cache: Peer, series: Series, wanted: SeriesSearch, part: SeqSet, now: float) -> None:
        """One request at a time for each cache and series: the rest follows its answer."""
        if any(one.cache == cache and one.series == series for one in self._requests.values()):
            return
        self._number += 1
        ranges, size = wanted.request(part, self._settings.bytes_max)
        deadline = now + self._settings.timeout_s
        left, begun = SeqSet.from_ranges(ranges), wanted.progress
        self._requests[self._number] = _Request(cache, series, left, deadline, begun, begun)
        self._effects.append(AskCache(cache, self._number, series, ranges, size))

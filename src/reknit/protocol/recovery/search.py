"""Search the caches for missing ranges: the nearest first, then the next one for what is still missing.

A cache answers with what it holds, and so denies what it does not hold. A silent cache is passed over, and asked
again after a back-off. A range is given up when every cache has denied it, or when it has waited for silent caches
for too long.

    want, want_all      AskCache for what is not searched for yet
    found               nobody is asked for it any more
    answered            what the cache did not have: AskCache for the next one; after the last one: Missing
    heard               the cache is sending: its timeout starts again
    unreachable         others are asked; the cache is asked again after a back-off
    reachable           the cache is asked again, also for what it denied
    pause, resume       no AskCache meanwhile
    tick                silent caches are unreachable; back-offs and patience end

Answers under a number that is not open are ignored: they come late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from reknit.ledger import Stream as Series
from reknit.protocol.machine import Peer
from reknit.seqset import Range, SeqSet

RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0
RANGES_MAX: Final = 1024
"""How many ranges one request names."""
FIRST_BYTES: Final = 1 << 20
"""The size of the first request; each further one is twice as large. The first events are processed meanwhile."""


class SearchSettings(msgspec.Struct, frozen=True):
    """How long a search waits for caches, and how much it asks for."""

    timeout_s: float = 1.0
    patience_s: float = 30.0
    bytes_max: int = 4 << 20
    again_s: float = 0.0
    """Events that all caches deny are requested once more after this: they may be on their way. 0: lost at once."""


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
class _Ask:
    cache: Peer
    series: Series
    left: SeqSet
    deadline: float


@dataclass(slots=True)
class _Wanted:
    """The events that are searched for in one series."""

    seqs: SeqSet = field(default_factory=SeqSet)
    asked: SeqSet = field(default_factory=SeqSet)
    denied: dict[Peer, SeqSet] = field(default_factory=dict)
    """By cache: what it does not hold."""
    silent: SeqSet = field(default_factory=SeqSet)
    """What only silent caches may have, and when the first of them is asked again."""
    retry_at: float = 0.0
    resting: list[tuple[float, SeqSet]] = field(default_factory=list)
    """(until, seqs): denied by all, and requested once more then."""
    rested: SeqSet = field(default_factory=SeqSet)
    """What was requested once more."""
    ask_bytes: int = FIRST_BYTES
    """The size of the next request."""
    patience: list[tuple[float, int, int]] = field(default_factory=list)
    """(until, start, stop): how long a range waits for silent caches."""


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
        self._asking = asking or SearchSettings()
        self._wanted: dict[Series, _Wanted] = {}
        self._asks: dict[int, _Ask] = {}
        self._away: dict[Peer, tuple[float, float]] = {}
        """By silent cache: when it is asked again, and the next back-off."""
        self._number = 0
        self._effects: list[Effect] = []

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def wanted(self, series: Series) -> SeqSet:
        """What is still searched for in a series."""
        wanted = self._wanted.get(series)
        return SeqSet() if wanted is None else wanted.seqs

    # -- missing events

    def want(self, series: Series, start: int, stop: int, now: float) -> None:
        """Search for `[start, stop)`, as far as it is not searched for yet."""
        self.want_all(series, [(start, stop)], now)

    def want_all(self, series: Series, ranges: Sequence[Range], now: float) -> None:
        """Search for several ranges of a series at once: they go into one request."""
        wanted = self._wanted.setdefault(series, _Wanted())
        for low, high in [part for bounds in ranges for part in wanted.seqs.missing(*bounds)]:
            wanted.seqs.add(low, high)
            wanted.patience.append((now + self._asking.patience_s, low, high))
        self._plan(series, wanted, now)

    def found(self, series: Series, start: int, stop: int) -> None:
        """These events came, from anywhere: no cache needs to be asked any more."""
        wanted = self._wanted.get(series)
        if wanted is not None:
            wanted.seqs.discard(start, stop)
            if not wanted.seqs:
                self._forget(series)

    def forget(self, series: Series) -> None:
        """Search for nothing of this series any more."""
        if series in self._wanted:
            self._forget(series)

    def _forget(self, series: Series) -> None:
        del self._wanted[series]
        self._asks = {number: ask for number, ask in self._asks.items() if ask.series != series}

    # -- answers from caches

    def answered(self, number: int, covered: Sequence[Range], is_last: bool, now: float) -> None:
        """A cache answered for the ranges `covered`; what it has of them was `found` before."""
        ask = self._asks.get(number)
        if ask is None:
            return
        ask.deadline = now + self._asking.timeout_s
        self._away.pop(ask.cache, None)
        wanted = self._wanted[ask.series]
        for start, stop in covered:
            for low, high in ask.left.overlap(start, stop) if 0 < start < stop else ():
                ask.left.discard(low, high)
                wanted.asked.discard(low, high)
                for gap in wanted.seqs.overlap(low, high):
                    wanted.denied.setdefault(ask.cache, SeqSet()).add(*gap)
        if is_last:
            self._end(number)
        self._plan(ask.series, wanted, now)

    def heard(self, cache: Peer, now: float) -> None:
        """Part of an answer came: the cache is sending."""
        for ask in self._asks.values():
            if ask.cache == cache:
                ask.deadline = now + self._asking.timeout_s

    def _end(self, number: int) -> _Ask:
        ask = self._asks.pop(number)
        for bounds in ask.left.ranges():
            self._wanted[ask.series].asked.discard(*bounds)
        return ask

    def unreachable(self, cache: Peer, now: float) -> None:
        """A cache is silent, or its connection is lost: others are asked meanwhile."""
        wait_s = self._away.get(cache, (0.0, RETRY_S_MIN))[1]
        self._away[cache] = (now + wait_s, min(wait_s * 2, RETRY_S_MAX))
        self._end_all(cache)
        self._plan_all(now)

    def _end_all(self, cache: Peer) -> None:
        for number in [number for number, ask in self._asks.items() if ask.cache == cache]:
            self._end(number)

    def reachable(self, cache: Peer, now: float) -> None:
        """A cache is there again. It may have been filled meanwhile: it is asked again for what it denied."""
        self._away.pop(cache, None)
        self._end_all(cache)
        for wanted in self._wanted.values():
            wanted.denied.pop(cache, None)
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
        """Pass over caches that were silent for too long, ask others again, and give up what waited for too long."""
        for cache in {ask.cache for ask in self._asks.values() if ask.deadline <= now}:
            self.unreachable(cache, now)
        self._plan_all(now)

    def next_deadline(self) -> float | None:
        """When a request times out, a cache is asked again, or patience ends."""
        if not self._wanted:
            return None
        due = [ask.deadline for ask in self._asks.values()]
        if not self._is_paused:
            waiting = [wanted for wanted in self._wanted.values() if wanted.silent]
            due += [one.retry_at for one in waiting]
            due += [until for one in self._wanted.values() for until, _ in one.resting]
            due += [
                until for one in waiting for until, *bounds in one.patience if one.silent.overlap(*bounds)
            ]
        return min(due, default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- which cache to ask

    def _plan_all(self, now: float) -> None:
        for series, wanted in list(self._wanted.items()):
            self._plan(series, wanted, now)

    def _plan(self, series: Series, wanted: _Wanted, now: float) -> None:
        if self._is_paused or series not in self._wanted:
            return
        rest = wanted.seqs.difference(wanted.asked)
        if wanted.resting:
            wanted.resting = [row for row in wanted.resting if row[0] > now]
            for _, seqs in wanted.resting:
                rest = rest.difference(seqs)
        wanted.silent = silent = SeqSet()
        wanted.retry_at = float("inf")
        for cache in self.caches:
            if not rest:
                return
            denied = wanted.denied.get(cache)
            part = rest.difference(denied) if denied else rest.copy()
            if not part:
                continue
            retry_at = self._away.get(cache, (now, 0.0))[0]
            if retry_at > now:
                silent = silent.union(part)
                wanted.retry_at = min(wanted.retry_at, retry_at)
                continue
            rest = rest.difference(part)
            self._ask(cache, series, wanted, part, now)
        self._give_up(series, wanted, rest, silent, now)

    def _ask(self, cache: Peer, series: Series, wanted: _Wanted, part: SeqSet, now: float) -> None:
        """One request at a time for each cache and series: the rest follows its answer."""
        if any(ask.cache == cache and ask.series == series for ask in self._asks.values()):
            return
        self._number += 1
        ranges = part.ranges()[:RANGES_MAX]
        for bounds in ranges:
            wanted.asked.add(*bounds)
        deadline = now + self._asking.timeout_s
        self._asks[self._number] = _Ask(cache, series, SeqSet.from_ranges(ranges), deadline)
        ask_bytes = min(wanted.ask_bytes, self._asking.bytes_max)
        wanted.ask_bytes = 2 * ask_bytes
        self._effects.append(AskCache(cache, self._number, series, ranges, ask_bytes))

    def _give_up(self, series: Series, wanted: _Wanted, rest: SeqSet, silent: SeqSet, now: float) -> None:
        """Ranges that all caches denied are missing; ranges that only silent ones may have, when patience ends."""
        gone = rest.difference(silent)
        wanted.silent = rest.difference(gone)
        for until, start, stop in wanted.patience:
            if until <= now:
                for low, high in rest.overlap(start, stop):
                    gone.add(low, high)
        if self._asking.again_s and self.caches:
            gone = self._rest(wanted, gone, now)
        if not gone:
            return
        self._effects += [Missing(series, *bounds) for bounds in gone.ranges()]
        wanted.seqs, wanted.silent = wanted.seqs.difference(gone), wanted.silent.difference(gone)
        wanted.patience = [row for row in wanted.patience if wanted.seqs.overlap(row[1], row[2])]
        if not wanted.seqs:
            self._forget(series)

    def _rest(self, wanted: _Wanted, gone: SeqSet, now: float) -> SeqSet:
        """Request once more, later, what is denied for the first time. Returns the rest."""
        fresh = gone.difference(wanted.rested)
        if fresh:
            wanted.resting.append((now + self._asking.again_s, fresh))
            wanted.rested = wanted.rested.union(fresh)
            wanted.denied = {cache: seqs.difference(fresh) for cache, seqs in wanted.denied.items()}
        return gone.difference(fresh)

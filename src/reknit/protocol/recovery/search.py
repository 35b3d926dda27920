"""Searching caches for missing ranges: the nearest first, then the next one for what is still missing.

A cache answers with what it holds and thereby says what it does not hold. One that is silent is passed over for a
while and asked again later; a range is given up when every cache said no, or when patience with the silent ones ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from reknit.ledger import Stream
from reknit.protocol.machine import Peer
from reknit.seqset import Range, SeqSet

RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0
RANGES_MAX: Final = 1024
"""So many ranges are asked for at once."""
FIRST_BYTES: Final = 1 << 20
"""So much is asked for at first, and twice as much each time: the first events are worked on while others come."""


class Asking(msgspec.Struct, frozen=True):
    """How caches are asked."""

    timeout_s: float = 1.0
    patience_s: float = 30.0
    bytes_max: int = 4 << 20
    again_s: float = 0.0
    """What all deny is asked for once more after so long: it may be on its way to a cache. 0: at once lost."""


class AskCache(msgspec.Struct, frozen=True):
    """Ask a cache for these ranges; the answers come back under this number."""

    cache: Peer
    number: int
    stream: Stream
    ranges: list[Range]
    bytes_max: int


class Missing(msgspec.Struct, frozen=True):
    """Nobody has these events."""

    stream: Stream
    start: int
    stop: int


Effect = AskCache | Missing


@dataclass(slots=True)
class _Ask:
    cache: Peer
    stream: Stream
    left: SeqSet
    deadline: float


@dataclass(slots=True)
class _Wanted:
    """What is searched for in one stream."""

    seqs: SeqSet = field(default_factory=SeqSet)
    asked: SeqSet = field(default_factory=SeqSet)
    denied: dict[Peer, SeqSet] = field(default_factory=dict)
    """Who said that it does not hold what."""
    silent: SeqSet = field(default_factory=SeqSet)
    """What only caches that are silent may still have, and when the first of them is asked again."""
    retry_at: float = 0.0
    resting: list[tuple[float, SeqSet]] = field(default_factory=list)
    """(until, seqs): denied by all, and to be asked for once more then."""
    rested: SeqSet = field(default_factory=SeqSet)
    """What had that second chance."""
    ask_bytes: int = FIRST_BYTES
    """How much the next question is for."""
    patience: list[tuple[float, int, int]] = field(default_factory=list)
    """(until, start, stop): how long a range waits for caches that are silent."""


class Search:
    """Finds ranges in caches, which are in order of nearness.

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

    def __init__(self, caches: Sequence[Peer] = (), asking: Asking | None = None) -> None:
        self.caches = list(caches)
        self.is_paused = False
        """No new questions while whoever wants the events has no room for them."""
        self._asking = asking or Asking()
        self._wanted: dict[Stream, _Wanted] = {}
        self._asks: dict[int, _Ask] = {}
        self._away: dict[Peer, tuple[float, float]] = {}
        """(ask again at, how long to wait after that) for caches that were silent."""
        self._number = 0
        self._effects: list[Effect] = []

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def wanted(self, stream: Stream) -> SeqSet:
        """What is still searched for."""
        wanted = self._wanted.get(stream)
        return SeqSet() if wanted is None else wanted.seqs

    # -- what is wanted

    def want(self, stream: Stream, start: int, stop: int, now: float) -> None:
        """Search for `[start, stop)`, as far as that is not under way."""
        self.want_all(stream, [(start, stop)], now)

    def want_all(self, stream: Stream, ranges: Sequence[Range], now: float) -> None:
        """Search for several ranges of a stream at once: they go into one question."""
        wanted = self._wanted.setdefault(stream, _Wanted())
        for low, high in [part for bounds in ranges for part in wanted.seqs.missing(*bounds)]:
            wanted.seqs.add(low, high)
            wanted.patience.append((now + self._asking.patience_s, low, high))
        self._plan(stream, wanted, now)

    def found(self, stream: Stream, start: int, stop: int) -> None:
        """These came, from whomever: nobody needs to be asked any more."""
        wanted = self._wanted.get(stream)
        if wanted is not None:
            wanted.seqs.discard(start, stop)
            if not wanted.seqs:
                self._forget(stream)

    def forget(self, stream: Stream) -> None:
        """Nothing of this stream is wanted any more."""
        if stream in self._wanted:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        del self._wanted[stream]
        self._asks = {number: ask for number, ask in self._asks.items() if ask.stream != stream}

    # -- what caches say

    def answered(self, number: int, covered: Sequence[Range], is_last: bool, now: float) -> None:
        """A cache said all that it has to say about `covered`; what it has of that was `found` before."""
        ask = self._asks.get(number)
        if ask is None:
            return
        ask.deadline = now + self._asking.timeout_s
        self._away.pop(ask.cache, None)
        wanted = self._wanted[ask.stream]
        for start, stop in covered:
            for low, high in ask.left.overlap(start, stop) if 0 < start < stop else ():
                ask.left.discard(low, high)
                wanted.asked.discard(low, high)
                for gap in wanted.seqs.overlap(low, high):
                    wanted.denied.setdefault(ask.cache, SeqSet()).add(*gap)
        if is_last:
            self._end(number)
        self._plan(ask.stream, wanted, now)

    def heard(self, cache: Peer, now: float) -> None:
        """Something of an answer came: the cache is at it."""
        for ask in self._asks.values():
            if ask.cache == cache:
                ask.deadline = now + self._asking.timeout_s

    def _end(self, number: int) -> _Ask:
        ask = self._asks.pop(number)
        for bounds in ask.left.ranges():
            self._wanted[ask.stream].asked.discard(*bounds)
        return ask

    def unreachable(self, cache: Peer, now: float) -> None:
        """A cache is silent, or its connection is gone: others are asked meanwhile."""
        wait_s = self._away.get(cache, (0.0, RETRY_S_MIN))[1]
        self._away[cache] = (now + wait_s, min(wait_s * 2, RETRY_S_MAX))
        self._end_all(cache)
        self._plan_all(now)

    def _end_all(self, cache: Peer) -> None:
        for number in [number for number, ask in self._asks.items() if ask.cache == cache]:
            self._end(number)

    def reachable(self, cache: Peer, now: float) -> None:
        """A cache is there again. It may have been filled meanwhile: what it denied is asked once more."""
        self._away.pop(cache, None)
        self._end_all(cache)
        for wanted in self._wanted.values():
            wanted.denied.pop(cache, None)
        self._plan_all(now)

    def resume(self, now: float) -> None:
        """There is room again."""
        self.is_paused = False
        self._plan_all(now)

    # -- time

    def tick(self, now: float) -> None:
        """Pass over who was silent for too long, ask again who had his time, give up what had enough."""
        for cache in {ask.cache for ask in self._asks.values() if ask.deadline <= now}:
            self.unreachable(cache, now)
        self._plan_all(now)

    def next_deadline(self) -> float | None:
        """When somebody was silent for too long, is to be asked again, or patience ends."""
        if not self._wanted:
            return None
        due = [ask.deadline for ask in self._asks.values()]
        if not self.is_paused:
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

    # -- whom to ask for what

    def _plan_all(self, now: float) -> None:
        for stream, wanted in list(self._wanted.items()):
            self._plan(stream, wanted, now)

    def _plan(self, stream: Stream, wanted: _Wanted, now: float) -> None:
        if self.is_paused or stream not in self._wanted:
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
            self._ask(cache, stream, wanted, part, now)
        self._give_up(stream, wanted, rest, silent, now)

    def _ask(self, cache: Peer, stream: Stream, wanted: _Wanted, part: SeqSet, now: float) -> None:
        """One question at a time for each cache and stream: the rest follows its answer."""
        if any(ask.cache == cache and ask.stream == stream for ask in self._asks.values()):
            return
        self._number += 1
        ranges = part.ranges()[:RANGES_MAX]
        for bounds in ranges:
            wanted.asked.add(*bounds)
        deadline = now + self._asking.timeout_s
        self._asks[self._number] = _Ask(cache, stream, SeqSet.from_ranges(ranges), deadline)
        ask_bytes = min(wanted.ask_bytes, self._asking.bytes_max)
        wanted.ask_bytes = 2 * ask_bytes
        self._effects.append(AskCache(cache, self._number, stream, ranges, ask_bytes))

    def _give_up(self, stream: Stream, wanted: _Wanted, rest: SeqSet, silent: SeqSet, now: float) -> None:
        """What everyone denied is missing; what only silent ones may have, when patience ends."""
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
        self._effects += [Missing(stream, *bounds) for bounds in gone.ranges()]
        wanted.seqs, wanted.silent = wanted.seqs.difference(gone), wanted.silent.difference(gone)
        wanted.patience = [row for row in wanted.patience if wanted.seqs.overlap(row[1], row[2])]
        if not wanted.seqs:
            self._forget(stream)

    def _rest(self, wanted: _Wanted, gone: SeqSet, now: float) -> SeqSet:
        """Give what is denied for the first time a second chance; gives what had it."""
        fresh = gone.difference(wanted.rested)
        if fresh:
            wanted.resting.append((now + self._asking.again_s, fresh))
            wanted.rested = wanted.rested.union(fresh)
            wanted.denied = {cache: seqs.difference(fresh) for cache, seqs in wanted.denied.items()}
        return gone.difference(fresh)

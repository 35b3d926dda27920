"""Asking all caches what they hold: for history at the beginning, for a lost tail, for publishers that were apart.

A round goes to every cache at once and ends when all have answered or had their time. Streams that one answer says
everything about are decided at once, so that a cache that hangs delays only what nobody else knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from reknit.ledger import Stream
from reknit.protocol.machine import Peer
from reknit.wire.recovery import Span

Bounds = tuple[int, int]
"""(first, known): begin with `first`; everything before `known` exists."""


class History(msgspec.Struct, frozen=True):
    """Which of the past is wanted: all that is held, the last `count` of each source, or what is no older."""

    count: int = 0
    age_s: float = 0.0


@dataclass(slots=True)
class _Round:
    pending: dict[Peer, int]
    deadline: float
    firsts: dict[Stream, int] = field(default_factory=dict)
    lasts: dict[Stream, int] = field(default_factory=dict)


class Surveys:
    """One round after another.

    >>> surveys = Surveys(History(count=2), timeout_s=1.0)
    >>> [(cache, number)] = surveys.ask(["edge"], now=0.0)
    >>> surveys.told(number, cache, [Span("plant/a", b"s" * 16, [(1, 9)], 8)], is_last=True)
    {('plant/a', b'ssssssssssssssss'): (7, 9)}
    """

    def __init__(self, history: History | None, timeout_s: float) -> None:
        self.history = history
        self.is_wanted_again = False
        """Something new turned up while a round was under way: it has to be asked for anew."""
        self._timeout_s = timeout_s
        self._round: _Round | None = None
        self._is_based = False
        """Whether a round was finished, so that what is new in a later one began after us."""
        self._number = 0

    @property
    def age_s(self) -> float:
        return self.history.age_s if self.history is not None else 0.0

    @property
    def is_done(self) -> bool:
        """Whether no round is under way."""
        return self._round is None

    def ask(self, caches: Sequence[Peer], now: float) -> list[tuple[Peer, int]]:
        """Begin a round: whom to ask, under which numbers. During a round: remember that another is wanted."""
        self.is_wanted_again = self._round is not None
        if self._round is not None:
            return []
        pending: dict[Peer, int] = {}
        for cache in caches:
            self._number += 1
            pending[cache] = self._number
        self._round = _Round(pending, now + self._timeout_s)
        return list(pending.items())

    def told(self, number: int, cache: Peer, spans: Sequence[Span], is_last: bool) -> dict[Stream, Bounds]:
        """What a cache holds; gives the streams that are decided by it."""
        current = self._round
        if current is None or current.pending.get(cache) != number:
            return {}
        decided: dict[Stream, Bounds] = {}
        for span in spans:
            stream = (span.topic, span.source)
            first = span.ranges[0][0] if span.ranges else span.last + 1
            current.firsts[stream] = min(first, current.firsts.get(stream, first))
            current.lasts[stream] = max(span.last, current.lasts.get(stream, 0))
            if self._is_all(span, first):
                decided[stream] = self._bounds(stream, current)
        return decided | self._answered(cache) if is_last else decided

    def _is_all(self, span: Span, first: int) -> bool:
        """Whether no other cache can have more of the history that is wanted."""
        history = self.history
        if history is None or len(span.ranges) != 1 or history.age_s:
            return False
        return first == 1 or 0 < history.count <= span.last + 1 - first

    def unreachable(self, cache: Peer) -> dict[Stream, Bounds]:
        """A cache can't answer: the round goes on without it."""
        return self._answered(cache)

    def _answered(self, cache: Peer) -> dict[Stream, Bounds]:
        if self._round is None or self._round.pending.pop(cache, None) is None or self._round.pending:
            return {}
        return self._finish(self._round)

    def _finish(self, done: _Round) -> dict[Stream, Bounds]:
        decided = {stream: self._bounds(stream, done) for stream in done.lasts}
        self._round = None
        self._is_based = True
        return decided

    def _bounds(self, stream: Stream, current: _Round) -> Bounds:
        known, first = current.lasts[stream] + 1, current.firsts[stream]
        if self.history is not None:
            return max(first, known - self.history.count) if self.history.count else first, known
        return 1 if self._is_based else known, known

    def tick(self, now: float) -> dict[Stream, Bounds]:
        """End a round that took too long, with what is known."""
        if self._round is None or now < self._round.deadline:
            return {}
        return self._finish(self._round)

    def next_deadline(self) -> float | None:
        return None if self._round is None else self._round.deadline

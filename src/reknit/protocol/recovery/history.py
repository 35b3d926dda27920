"""Surveys: ask all caches what they hold, for history at the start, for lost last events, for partitioned publishers.

A round goes to every cache at once, and ends when all have answered or timed out. A series is decided at once if one
answer says everything about it, so a cache that hangs delays only what nobody else knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from reknit.ledger import Series
from reknit.protocol.machine import Peer
from reknit.wire.recovery import Span

SeriesBounds = tuple[int, int]
"""(first, known): start with `first`; everything before `known` exists."""


class History(msgspec.Struct, frozen=True):
    """Which past events are wanted: all that are held, the last `count` of each source, or those up to `age_s` old."""

    count: int = 0
    age_s: float = 0.0


@dataclass(slots=True)
class _Round:
    pending: dict[Peer, int]
    deadline: float
    firsts: dict[Series, int] = field(default_factory=dict)
    lasts: dict[Series, int] = field(default_factory=dict)
    new: set[Series] = field(default_factory=set)
    """Series that a cache did not have when it answered in an earlier round: they began after us."""


class Surveys:
    """Survey rounds, one after another.

    >>> surveys = Surveys(History(count=2), timeout_s=1.0)
    >>> [(cache, number)] = surveys.ask(["edge"], now=0.0)
    >>> surveys.surveyed(number, cache, [Span("plant/a", b"s" * 16, [(1, 9)], 8)], is_last=True)
    {('plant/a', b'ssssssssssssssss'): (7, 9)}
    """

    def __init__(self, history: History | None, timeout_s: float) -> None:
        self.history = history
        self.is_wanted_again = False
        """A new series turned up during a round: another round has to follow."""
        self._timeout_s = timeout_s
        self._round: _Round | None = None
        self._has_finished = False
        """Whether a round has finished: series that are new in a later one began after us."""
        self._seen: dict[Peer, set[Series]] = {}
        """By cache that has answered: the series that it had."""
        self._number = 0

    @property
    def age_s(self) -> float:
        return self.history.age_s if self.history is not None else 0.0

    @property
    def is_done(self) -> bool:
        """Whether no round is under way."""
        return self._round is None

    def ask(self, caches: Sequence[Peer], now: float) -> list[tuple[Peer, int]]:
        """Start a round, or note that another one is wanted. Returns the caches to ask, and their numbers."""
        self.is_wanted_again = self._round is not None
        if self._round is not None:
            return []
        pending: dict[Peer, int] = {}
        for cache in caches:
            self._number += 1
            pending[cache] = self._number
        self._round = _Round(pending, now + self._timeout_s)
        return list(pending.items())

    def surveyed(
        self, number: int, cache: Peer, spans: Sequence[Span], is_last: bool
    ) -> dict[Series, SeriesBounds]:
        """A cache said what it holds. Returns the series that are decided by it."""
        current = self._round
        if current is None or current.pending.get(cache) != number:
            return {}
        decided: dict[Series, SeriesBounds] = {}
        seen = self._seen.get(cache)
        for span in spans:
            series = (span.topic, span.source)
            if seen is not None and series not in seen:
                current.new.add(series)
            first = span.ranges[0][0] if span.ranges else span.last + 1
            current.firsts[series] = min(first, current.firsts.get(series, first))
            current.lasts[series] = max(span.last, current.lasts.get(series, 0))
            if self._is_all(span, first, series in current.new):
                decided[series] = self._bounds(series, current)
        if not is_last:
            return decided
        if self.history is not None and self.history.count and seen is None:
            self._seen[cache] = set(current.lasts)
        return decided | self._answered(cache)

    def _is_all(self, span: Span, first: int, is_new: bool) -> bool:
        """Whether no other cache can have more of the history that is wanted."""
        history = self.history
        if history is None or len(span.ranges) != 1 or history.age_s:
            return False
        return first == 1 or (not is_new and 0 < history.count <= span.last + 1 - first)

    def unreachable(self, cache: Peer) -> dict[Series, SeriesBounds]:
        """A cache can't answer: the round continues without it."""
        return self._answered(cache)

    def _answered(self, cache: Peer) -> dict[Series, SeriesBounds]:
        if self._round is None or self._round.pending.pop(cache, None) is None or self._round.pending:
            return {}
        return self._finish(self._round)

    def _finish(self, done: _Round) -> dict[Series, SeriesBounds]:
        decided = {series: self._bounds(series, done) for series in done.lasts}
        self._round = None
        self._has_finished = True
        return decided

    def _bounds(self, series: Series, current: _Round) -> SeriesBounds:
        known, first = current.lasts[series] + 1, current.firsts[series]
        if self.history is not None:
            is_limited = bool(self.history.count) and series not in current.new  # what is new is not history
            return max(first, known - self.history.count) if is_limited else first, known
        return 1 if self._has_finished else known, known

    def tick(self, now: float) -> dict[Series, SeriesBounds]:
        """End a round that took too long, with the answers so far."""
        if self._round is None or now < self._round.deadline:
            return {}
        return self._finish(self._round)

    def next_deadline(self) -> float | None:
        return None if self._round is None else self._round.deadline

"""The search in one series: which events are missing, which caches deny them, and how long to wait for silent ones.

A cache that answers without saying anything about the question is treated as if it were silent, for this series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reknit.protocol.machine import Peer
from reknit.seqset import Range, SeqSet

FIRST_BYTES: Final = 1 << 20
"""The size of the first request; each further one is twice as large. The first events are processed meanwhile."""
RANGES_MAX: Final = 1024
"""How many ranges one request names."""
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0
"""The back-off before a cache is asked again that was silent, or that answered without answering the question."""
NEVER: Final = float("inf")


@dataclass(slots=True)
class SeriesSearch:
    """The events that are searched for in one series."""

    seqs: SeqSet = field(default_factory=SeqSet)
    _asked: SeqSet = field(default_factory=SeqSet)
    _denied: dict[Peer, SeqSet] = field(default_factory=dict)
    """By cache: the events that it does not hold."""
    _silent: SeqSet = field(default_factory=SeqSet)
    """Events that only silent caches may have…"""
    _retry_at: float = 0.0
    """…and when the first of them is asked again."""
    _resting: list[tuple[float, SeqSet]] = field(default_factory=list)
    """(until, seqs): denied by all, and requested again then."""
    _rested: SeqSet = field(default_factory=SeqSet)
    """Events that were requested a second time."""
    _request_bytes: int = FIRST_BYTES
    """The size of the next request."""
    _backoffs: dict[Peer, tuple[float, float]] = field(default_factory=dict)
    """By cache that answered without answering the question: when it is asked again, and the next back-off."""
    progress: int = 0
    """Grows whenever events come, or a cache denies them."""
    _patience: list[tuple[float, int, int]] = field(default_factory=list)
    """(until, start, stop): how long a range waits for silent caches."""

    def want(self, ranges: Sequence[Range], patient_until: float) -> None:
        """Search for these ranges, too."""
        for low, high in [part for bounds in ranges for part in self.seqs.missing(*bounds)]:
            self.seqs.add(low, high)
            self._patience.append((patient_until, low, high))

    def found(self, start: int, stop: int) -> None:
        """These events came."""
        self.progress += self.seqs.discard(start, stop)

    # -- requests

    def request(self, part: SeqSet, bytes_max: int) -> tuple[list[Range], int]:
        """Request these events. Returns the ranges of one request, and its size."""
        ranges = part.ranges()[:RANGES_MAX]
        for bounds in ranges:
            self._asked.add(*bounds)
        size = min(self._request_bytes, bytes_max)
        self._request_bytes = 2 * size
        return ranges, size

    def answered(self, cache: Peer, start: int, stop: int) -> None:
        """A cache answered for this range: it does not hold the events that are still missing."""
        self.progress += 1
        self._asked.discard(start, stop)
        for gap in self.seqs.overlap(start, stop):
            self._denied.setdefault(cache, SeqSet()).add(*gap)

    def unanswered(self, ranges: Sequence[Range]) -> None:
        """A request ended without an answer for these ranges."""
        for bounds in ranges:
            self._asked.discard(*bounds)

    def answered_nothing(self, cache: Peer, now: float) -> None:
        """A cache answered a request completely, and neither sent nor denied anything: it has to wait."""
        wait_s = self._backoffs.get(cache, (0.0, RETRY_S_MIN))[1]
        self._backoffs[cache] = (now + wait_s, min(wait_s * 2, RETRY_S_MAX))

    def answered_something(self, cache: Peer) -> None:
        """A cache answers the questions."""
        self._backoffs.pop(cache, None)

    def backed_off_until(self, cache: Peer) -> float:
        """When the cache may be asked for this series."""
        return self._backoffs[cache][0] if cache in self._backoffs else 0.0

    def forget_denials(self, cache: Peer) -> None:
        """The cache may have been filled meanwhile."""
        self._denied.pop(cache, None)
        self._backoffs.pop(cache, None)

    # -- planning

    def start_plan(self, now: float) -> SeqSet:
        """Start to decide which cache to ask. Returns the events that are not requested now."""
        rest = self.seqs.difference(self._asked)
        if self._resting:
            self._resting = [row for row in self._resting if row[0] > now]
            for _, seqs in self._resting:
                rest = rest.difference(seqs)
        self._silent, self._retry_at = SeqSet(), NEVER
        return rest

    def not_denied(self, cache: Peer, rest: SeqSet) -> SeqSet:
        """The subset of these events that a cache may have."""
        denied = self._denied.get(cache)
        return rest.difference(denied) if denied else rest.copy()

    def retry_at(self, at: float) -> None:
        """A silent cache that may have events is asked again then."""
        self._retry_at = min(self._retry_at, at)

    def give_up(self, rest: SeqSet, silent: SeqSet, again_s: float, now: float) -> list[Range]:
        """Give up the ranges that all caches denied, and those that waited for silent caches for too long.

        `rest` could not be requested from any cache; silent ones may have `silent`. If `again_s` is not 0, ranges that
        are denied for the first time are requested again after this time. Returns the ranges that are missing.
        """
        gone = rest.difference(silent)
        self._silent = rest.difference(gone)
        for until, start, stop in self._patience:
            if until <= now:
                for low, high in rest.overlap(start, stop):
                    gone.add(low, high)
        if again_s:
            gone = self._rest(gone, now + again_s)
        if not gone:
            return []
        self.seqs, self._silent = self.seqs.difference(gone), self._silent.difference(gone)
        self._patience = [row for row in self._patience if self.seqs.overlap(row[1], row[2])]
        return gone.ranges()

    def _rest(self, gone: SeqSet, until: float) -> SeqSet:
        """Schedule a second request for events that are denied for the first time. Returns the rest."""
        fresh = gone.difference(self._rested)
        if fresh:
            self._resting.append((until, fresh))
            self._rested = self._rested.union(fresh)
            self._denied = {cache: seqs.difference(fresh) for cache, seqs in self._denied.items()}
        return gone.difference(fresh)

    def deadlines(self) -> list[float]:
        """When a silent cache is asked again, a range is requested again, or patience ends."""
        due = [until for until, _ in self._resting]
        if self._silent:
            due.append(self._retry_at)
            due += [until for until, *bounds in self._patience if self._silent.overlap(*bounds)]
        return due

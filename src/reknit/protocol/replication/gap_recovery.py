"""Recovers what a target misses from the node that the events come from, and from the caches that this node knows.

The other node delivered these events before, and does not deliver them again. What is found is filled in as it comes, in
seq order; a range counts as lost only when it is denied, never because nobody answers.

    recover             the target expects events that nobody here has: AskRemote
    RemoteFound         they wait until everything before them is found or denied
    RemoteAnswered      FillGap for what is known from the expected seq on; AskRemote for the rest
    RemoteUnreachable   asked again after a back-off
    tick                a node that is silent for too long is asked again

The next request waits until the target has taken what was filled in, and expects the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.recovery.cache_inputs import (
    AskRemote,
    Remote,
    RemoteAnswered,
    RemoteFound,
    RemoteListed,
    RemoteUnreachable,
)
from reknit.protocol.recovery.search import AskCache, Search, SearchSettings
from reknit.protocol.replication.gap import Gap
from reknit.seqset import SeqSet

FOR_EVER: Final = float("inf")


class FillGap(msgspec.Struct, frozen=True):
    """`found` are the next events of a gap. Those before them are lost; if it is empty, all are."""

    gap: Gap
    found: list[Batch]


Input = Remote
Effect = AskRemote | FillGap


@dataclass(slots=True)
class OpenGap:
    """`[seq, stop)` of a series is missing at the target."""

    series: Series
    seq: int
    stop: int
    search: Search
    is_expected: bool = True
    """Whether the target expects `seq` next: it has taken what was filled in before."""
    found: list[Batch] = field(default_factory=list)
    """In seq order."""
    missing: SeqSet = field(default_factory=SeqSet)

    def add(self, batches: list[Batch]) -> None:
        """Keep the events that are searched for."""
        for batch in batches:
            if (batch.topic, batch.source) == self.series:
                for bounds in self.search.wanted(self.series).overlap(batch.first, batch.stop):
                    self.found.append(batch.cut(*bounds))
                    self.search.found(self.series, *bounds)
        self.found.sort(key=lambda batch: batch.first)

    def take(self) -> list[Batch] | None:
        """The next events, up to the first one that is not known yet; none: all are lost. None: nothing is known."""
        start = self.missing.first_missing(self.seq)
        if start > self.seq and not self.is_expected:
            return None  # a loss is reported when the target has taken everything before it
        taken: list[Batch] = []
        for batch in self.found:
            if batch.first != (taken[-1].stop if taken else start):
                break
            taken.append(batch)
        del self.found[: len(taken)]
        return taken if taken or start >= self.stop else None


class GapRecovery:
    """The gaps of all series that come from one node, `url`."""

    def __init__(self, url: str, *, timeout_s: float, bytes_max: int) -> None:
        self._url = url
        self._settings = SearchSettings(timeout_s, FOR_EVER, bytes_max)
        self._gaps: dict[int, OpenGap] = {}
        self._by_series: dict[Series, int] = {}
        self._count = 0
        self._effects: list[Effect] = []

    @property
    def text(self) -> str:
        """Why events are lost."""
        return f"nobody at {self._url} has it any more"

    def is_open(self, series: Series) -> bool:
        """Whether a gap of this series is being filled."""
        return series in self._by_series

    def recover(self, found: Gap, now: float) -> None:
        """The target misses events."""
        number = self._by_series.get(found.series, 0)
        gap = self._gaps.get(number)
        if gap is None or (gap.seq, gap.stop) != (found.start, found.stop):
            self._forget(number)
            number, gap = self._open(found, now)
        gap.is_expected = True
        if gap.search.pause(False):
            gap.search.resume(now)
        self._advance(number, gap)

    def _open(self, found: Gap, now: float) -> tuple[int, OpenGap]:
        self._count += 1
        gap = OpenGap(found.series, found.start, found.stop, Search([self._url], self._settings))
        self._gaps[self._count] = gap
        self._by_series[gap.series] = self._count
        gap.search.want(gap.series, gap.seq, gap.stop, now)
        return self._count, gap

    def _forget(self, number: int) -> None:
        gap = self._gaps.pop(number, None)
        if gap is not None:
            del self._by_series[gap.series]

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the other node. Replies about a gap that is filled come late, and are ignored."""
        gap = self._gaps.get(message.search)
        if gap is None:
            return
        match message:
            case RemoteFound(batches=batches):
                gap.add(batches)
                gap.search.heard(self._url, now)
                return  # filled in with the rest of the answer: the target gets what waits behind it each time, too
            case RemoteAnswered(number=number, covered=covered, is_last=is_last):
                gap.search.answered(number, covered, is_last, now)
            case RemoteUnreachable():
                gap.search.unreachable(self._url, now)
            case RemoteListed():
                pass  # not requested here
            case _:
                assert_never(message)
        self._advance(message.search, gap)

    def _advance(self, number: int, gap: OpenGap) -> None:
        for effect in gap.search.take_effects():
            if isinstance(effect, AskCache):
                ask = (self._url, number, effect.number, effect.series, effect.ranges, effect.bytes_max)
                self._effects.append(AskRemote(*ask))
            else:
                gap.missing.add(effect.start, effect.stop)
        found = gap.take()
        if found is None:
            return
        self._effects.append(FillGap(Gap(gap.series, gap.seq, gap.stop), found))
        gap.seq, gap.is_expected = found[-1].stop if found else gap.stop, False
        if gap.seq >= gap.stop:
            self._forget(number)
        else:
            gap.search.pause(True)

    def tick(self, now: float) -> None:
        """Ask again where an answer did not come in time, or a back-off is over."""
        for number, gap in list(self._gaps.items()):
            gap.search.tick(now)
            self._advance(number, gap)

    def next_deadline(self) -> float | None:
        """When the other node is asked again."""
        due = [gap.search.next_deadline() for gap in self._gaps.values()]
        return min((at for at in due if at is not None and at < FOR_EVER), default=None)

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self._effects = self._effects, []
        return effects


_MACHINE: type[Machine[Input, Effect]] = GapRecovery

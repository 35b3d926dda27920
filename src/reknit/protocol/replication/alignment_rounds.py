"""Rounds of alignment with another node: compare what both hold, and fetch what is lacking here, at intervals.

Events that continue a series of this node go into its journal, like anything published. Older ones are stored beside it:
a journal is not rewritten.

    schedule, tick        BeginRound, when a round is due
    begin                 with what this node holds: AskDigest
    Digest …              the answers: AskBuckets, AskSpans; AskRemote for what is lacking, one series at a time
    RemoteFound           PublishFetched or StoreBeside
    RemoteAnswered        AskRemote for the rest; after the last answer: SaveBeside
    Saved                 what was stored beside the journal is durable: the next series, or RoundEnded
    RoundFailed           the round is given up; the next one is due after the interval
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

import msgspec

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.machine import Machine, Peer, earliest
from reknit.protocol.recovery import alignment
from reknit.protocol.recovery.alignment import (
    Alignment,
    AlignmentDone,
    AskBuckets,
    AskDigest,
    AskSpans,
    BucketFingerprints,
    Digest,
    FetchRanges,
    HeldSpans,
)
from reknit.protocol.recovery.cache_inputs import (
    AskRemote,
    Remote,
    RemoteAnswered,
    RemoteFound,
    RemoteListed,
    RemoteUnreachable,
)
from reknit.protocol.recovery.holdings import Holdings
from reknit.protocol.recovery.search import AskCache, Search, SearchSettings
from reknit.seqset import SeqSet

Existing = Callable[[Series], SeqSet]
"""Every event of a series that is known to be published."""


class Saved(msgspec.Struct, frozen=True):
    """What was stored beside the journal is durable."""


class RoundFailed(msgspec.Struct, frozen=True):
    """The other node did not answer a question."""


class BeginRound(msgspec.Struct, frozen=True):
    """A round is due: begin it with what this node holds."""


class PublishFetched(msgspec.Struct, frozen=True):
    """Publish these events at this node: they continue their series."""

    batch: Batch


class StoreBeside(msgspec.Struct, frozen=True):
    """Store these events beside the journal: they are older than what it has of their series."""

    batch: Batch


class SaveBeside(msgspec.Struct, frozen=True):
    """Make what was stored beside the journal durable; the answer is `Saved`."""


class RoundEnded(msgspec.Struct, frozen=True):
    """The round is over. `is_comparable` is False if the other node holds other topics."""

    is_comparable: bool


Input = alignment.Input | Remote | Saved | RoundFailed
Ask = AskDigest | AskBuckets | AskSpans
Effect = Ask | AskRemote | BeginRound | PublishFetched | StoreBeside | SaveBeside | RoundEnded


class AlignmentRounds:
    """Rounds with the node at `url`, every `interval_s` once they are scheduled."""

    def __init__(
        self, url: str, pattern: str, *, existing: Existing, settings: SearchSettings, interval_s: float
    ) -> None:
        self._url = url
        self._existing = existing
        self._interval_s = interval_s
        self._alignment = Alignment(pattern)
        self._search = Search([url], settings)
        self._is_scheduled = False
        self._due: float | None = None
        self._steps: deque[alignment.Effect] = deque()
        """What the comparison asked for, and was not begun."""
        self._fetching: FetchRanges | None = None
        self._is_saving = False
        self._round = 0
        self._published: dict[Series, int] = {}
        """The last seq of each series that was published here and may not be durable yet."""
        self._effects: list[Effect] = []

    def schedule(self, now: float) -> None:
        """Begin rounds from now on."""
        self._is_scheduled = True
        self._due = now

    def begin(self, held: Holdings, now: float) -> None:
        """Begin a round with what this node holds."""
        self._give_up()
        self._round += 1
        self._published = {
            series: last
            for series, last in self._published.items()
            if not self._existing(series).covers(last, last + 1)
        }
        self._alignment.start(held)
        self._continue(now)

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An answer of the other node, or about the events that were stored."""
        match message:
            case Digest() | BucketFingerprints() | HeldSpans():
                self._alignment.receive(message, peer, now)
            case RemoteFound() | RemoteAnswered() | RemoteListed() | RemoteUnreachable():
                self._replied(message, now)
            case Saved():
                if self._is_saving:
                    self._fetching, self._is_saving = None, False
            case RoundFailed():
                self._give_up()
                self._end(now)
            case _:
                assert_never(message)
        self._continue(now)

    def tick(self, now: float) -> None:
        """Begin a round that is due, and pass over a node that is silent."""
        if self._due is not None and now >= self._due:
            self._due = None
            self._effects.append(BeginRound())
        self._search.tick(now)
        self._continue(now)

    def next_deadline(self) -> float | None:
        """When a round is due, or an answer did not come in time."""
        return earliest([self._due, self._search.next_deadline()])

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- rounds

    def _give_up(self) -> None:
        if self._fetching is not None:
            self._search.forget(self._fetching.series)
        self._search.take_effects()
        self._alignment.take_effects()
        self._steps.clear()
        self._fetching, self._is_saving = None, False

    def _end(self, now: float) -> None:
        if self._is_scheduled:
            self._due = now + self._interval_s

    def _continue(self, now: float) -> None:
        """Take the next steps, up to one that waits for an answer."""
        self._steps += self._alignment.take_effects()
        while self._steps and self._fetching is None:
            match step := self._steps.popleft():
                case AskDigest() | AskBuckets() | AskSpans():
                    self._effects.append(step)
                case FetchRanges(series=series, ranges=ranges):
                    self._fetching = step
                    self._search.want_all(series, ranges, now)
                case AlignmentDone(is_comparable=is_comparable):
                    self._effects.append(RoundEnded(is_comparable))
                    self._end(now)
                case _:
                    assert_never(step)
        self._ask()

    def _ask(self) -> None:
        effects = self._search.take_effects()
        for effect in effects:
            if isinstance(effect, AskCache):
                ask = (effect.number, effect.series, effect.ranges, effect.bytes_max)
                self._effects.append(AskRemote(self._url, self._round, *ask))
        if self._fetching is not None and not self._search and not self._is_saving:
            self._is_saving = True
            self._effects.append(SaveBeside())

    # -- fetching

    def _replied(self, message: Remote, now: float) -> None:
        if message.search != self._round:
            return
        match message:
            case RemoteFound(batches=batches):
                self._found(batches)
                self._search.heard(self._url, now)
            case RemoteAnswered(number=number, covered=covered, is_last=is_last):
                self._search.answered(number, covered, is_last, now)
            case RemoteUnreachable():
                self._search.unreachable(self._url, now)
            case RemoteListed():
                pass  # not requested here
            case _:
                assert_never(message)

    def _found(self, batches: list[Batch]) -> None:
        for batch in batches:
            series = (batch.topic, batch.source)
            for bounds in self._search.wanted(series).overlap(batch.first, batch.stop):
                self._effects += self._place(series, batch.cut(*bounds))
            self._search.found(series, batch.first, batch.stop)

    def _place(self, series: Series, batch: Batch) -> list[Effect]:
        """Where fetched events go: nowhere, if they were published in an earlier round and are not durable yet."""
        known, published = self._existing(series), self._published.get(series, 0)
        stored = known.last if known else 0
        if stored < batch.first <= published:
            if batch.stop - 1 <= published:
                return []
            batch = batch.cut(published + 1, batch.stop)
        last = max(stored, published)
        if last and batch.first != last + 1:
            return [StoreBeside(batch)]
        self._published[series] = batch.stop - 1
        return [PublishFetched(batch)]


_MACHINE: type[Machine[Input, Effect]] = AlignmentRounds

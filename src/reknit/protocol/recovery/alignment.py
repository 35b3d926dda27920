"""Alignment: two caches that were apart compare digests, and each requests only what it lacks.

A cache holds a few ranges of each series, so a digest is small: one fingerprint for everything, and the ranges of the
series that changed lately. Only if the fingerprints differ, one fingerprint for each bucket of series follows, and
then the ranges in the buckets that differ.

    IDLE    ── start ──> DIGEST: AskDigest
    DIGEST  ── Digest ──> IDLE (equal, or not comparable): AlignmentDone; or BUCKETS: FetchRanges, AskBuckets
    BUCKETS ── BucketFingerprints ──> IDLE (equal): AlignmentDone; or SPANS: AskSpans
    SPANS   ── HeldSpans ──> SPANS: FetchRanges, AskSpans for more buckets; or IDLE: FetchRanges, AlignmentDone

An answer that was not requested in this state comes late, and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Any, Final, assert_never

import msgspec

from reknit.ledger import Series
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.recovery.holdings import Holdings
from reknit.seqset import Range
from reknit.wire.recovery import Span

HOT_MAX: Final = 256
"""How many recently changed series go with the first digest."""
SPAN_BUCKETS: Final = 2
"""How many buckets are asked for at a time: with 200,000 series, some 6,000 are in the answer."""


class Digest(msgspec.Struct, frozen=True):
    """The first level: one fingerprint for everything, and the ranges that changed lately."""

    config: str
    """The topics that are held, and how they are digested. Digests of different configurations are not compared."""
    all: int
    hot: list[Span] = []


class BucketFingerprints(msgspec.Struct, frozen=True):
    """The second level: one fingerprint for each bucket."""

    fingerprints: list[int]


class HeldSpans(msgspec.Struct, frozen=True):
    """The third level: the ranges held of the series in some buckets."""

    spans: list[Span]


class AskDigest(msgspec.Struct, frozen=True):
    """Ask the other cache for its digest."""


class AskBuckets(msgspec.Struct, frozen=True):
    """Ask the other cache for its bucket fingerprints."""


class AskSpans(msgspec.Struct, frozen=True):
    """Ask the other cache for the ranges in these buckets."""

    buckets: list[int]


class FetchRanges(msgspec.Struct, frozen=True):
    """The other cache holds these ranges of a series, and we do not: fetch them."""

    series: Series
    ranges: list[Range]


class AlignmentDone(msgspec.Struct, frozen=True):
    """The comparison ended. `is_comparable` is False if the configurations differ."""

    is_comparable: bool = True


Input = Digest | BucketFingerprints | HeldSpans
Effect = AskDigest | AskBuckets | AskSpans | FetchRanges | AlignmentDone


class AlignmentState(Enum):
    """The state of a comparison."""

    IDLE = "idle"
    DIGEST = "digest"
    BUCKETS = "buckets"
    SPANS = "spans"


TRANSITIONS: Final[dict[tuple[AlignmentState, type[Any]], tuple[AlignmentState, ...]]] = {
    (AlignmentState.DIGEST, Digest): (AlignmentState.IDLE, AlignmentState.BUCKETS),
    (AlignmentState.BUCKETS, BucketFingerprints): (AlignmentState.IDLE, AlignmentState.SPANS),
    (AlignmentState.SPANS, HeldSpans): (AlignmentState.IDLE, AlignmentState.SPANS),
}


# -- the side that answers


def digest(held: Holdings, config: str, hot: Iterable[Series] = ()) -> Digest:
    """The first level. `hot` are the series that changed lately, the latest first."""
    spans = (Span(*series, seqs.ranges(), seqs.last) for series in hot if (seqs := held.get(series)))
    return Digest(config, held.fingerprint, list(islice(spans, HOT_MAX)))


def buckets(held: Holdings) -> BucketFingerprints:
    """The second level."""
    return BucketFingerprints(list(held.fingerprints))


def rows(held: Holdings, wanted: Iterable[int]) -> HeldSpans:
    """The third level. Raises `IndexError` for a bucket that there is not."""
    return HeldSpans(list(held.spans(wanted)))


# -- the side that asks


class Alignment:
    """Comparisons with one other cache, one after another.

    >>> from reknit.seqset import SeqSet
    >>> one = ("a", b"s" * 16)
    >>> mine, theirs = (Holdings.of({one: SeqSet.from_ranges([(1, stop)])}) for stop in (5, 9))
    >>> alignment = Alignment("**")
    >>> alignment.start(mine)
    >>> alignment.take_effects()
    [AskDigest()]
    >>> alignment.receive(digest(theirs, "**", hot=[one]))
    >>> alignment.take_effects()
    [FetchRanges(series=('a', b'ssssssssssssssss'), ranges=[(5, 9)]), AlignmentDone(is_comparable=True)]
    """

    def __init__(self, config: str) -> None:
        self.state = AlignmentState.IDLE
        self._config = config
        self._held = Holdings()
        self._differing: list[int] = []
        """The buckets to be asked for."""
        self._effects: list[Effect] = []

    def start(self, held: Holdings) -> None:
        """Start a comparison with what we hold now. What is going to be fetched is added to it."""
        self.state = AlignmentState.DIGEST
        self._held = held
        self._effects.append(AskDigest())

    def receive(self, message: Input, peer: Peer = "", now: float = 0.0) -> None:
        """An answer of the other cache. One that was not requested in this state changes nothing."""
        if (self.state, type(message)) not in TRANSITIONS:
            return
        match message:
            case Digest():
                self._compare(message)
            case BucketFingerprints(fingerprints=fingerprints):
                self._compare_buckets(fingerprints)
            case HeldSpans(spans=spans):
                self._want(spans)
                self._ask_spans()
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Nothing has a deadline: the driver gives up a comparison."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    def _compare(self, other: Digest) -> None:
        if other.config != self._config:
            self._end(is_comparable=False)
        elif other.all == self._held.fingerprint:
            self._end()
        else:
            self._want(other.hot)
            if other.all == self._held.fingerprint:  # only recent changes differed
                self._end()
            else:
                self.state = AlignmentState.BUCKETS
                self._effects.append(AskBuckets())

    def _compare_buckets(self, others: list[int]) -> None:
        pairs = enumerate(zip(self._held.fingerprints, others, strict=False))
        self._differing = [at for at, (one, other) in pairs if one != other]
        self._ask_spans()

    def _ask_spans(self) -> None:
        """Ask for some buckets at a time, so that no answer takes long."""
        some, self._differing = self._differing[:SPAN_BUCKETS], self._differing[SPAN_BUCKETS:]
        if some:
            self.state = AlignmentState.SPANS
            self._effects.append(AskSpans(some))
        else:
            self._end()

    def _want(self, spans: Iterable[Span]) -> None:
        for span in spans:
            series = (span.topic, span.source)
            lacking = self._held.lacking(series, span.ranges)
            if lacking:
                self._effects.append(FetchRanges(series, lacking))
                self._held.add(series, lacking)

    def _end(self, is_comparable: bool = True) -> None:
        self.state = AlignmentState.IDLE
        self._effects.append(AlignmentDone(is_comparable))


_: type[Machine[Input, Effect]] = Alignment

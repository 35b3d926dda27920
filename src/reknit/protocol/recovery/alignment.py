"""Alignment: two caches that were apart compare digests, and each requests only what it lacks.

A cache holds a few ranges of each series, so a digest is small: one fingerprint for everything, and the ranges of the
series that changed lately. Only if the fingerprints differ, one fingerprint for each bucket of series follows, and
then the ranges in the buckets that differ.

    IDLE    ── start ──> DIGEST: AskDigest
    DIGEST  ── Digest ──> IDLE (equal, or not comparable): AlignmentDone; or BUCKETS: FetchRanges, AskBuckets
    BUCKETS ── BucketFingerprints ──> IDLE (equal): AlignmentDone; or SPANS: AskSpans
    SPANS   ── HeldSpans ──> IDLE: FetchRanges, AlignmentDone

An answer that was not requested in this state comes late, and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, assert_never

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.ledger import Series
from reknit.protocol.machine import Machine, Peer
from reknit.seqset import Range, SeqSet
from reknit.wire.recovery import Span

BUCKETS: Final = 64
HOT_MAX: Final = 256
"""How many recently changed series go with the first digest."""

Held = Mapping[Series, SeqSet]


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
    (AlignmentState.SPANS, HeldSpans): (AlignmentState.IDLE,),
}


# -- the side that answers


def fingerprint(series: Series, seqs: SeqSet) -> int:
    """A number for the ranges held of a series; the same ranges give the same number."""
    text = f"{series[0]}\0{series[1].hex()}\0{seqs.ranges()}"
    return xxh3_64_intdigest(text.encode())


def bucket(series: Series) -> int:
    """The bucket that a series belongs to."""
    return xxh3_64_intdigest(series[0].encode() + b"\0" + series[1]) % BUCKETS


def digest(held: Held, config: str, hot: Iterable[Series] = ()) -> Digest:
    """The first level. `hot` are the series that changed lately, the latest first."""
    rows = [Span(*series, held[series].ranges(), held[series].last) for series in hot if series in held]
    return Digest(config, _joined(held), rows[:HOT_MAX])


def buckets(held: Held) -> BucketFingerprints:
    """The second level."""
    prints = [0] * BUCKETS
    for series, seqs in held.items():
        prints[bucket(series)] ^= fingerprint(series, seqs) if seqs else 0
    return BucketFingerprints(prints)


def rows(held: Held, wanted: Iterable[int]) -> HeldSpans:
    """The third level."""
    chosen = set(wanted)
    return HeldSpans(
        [
            Span(*series, seqs.ranges(), seqs.last)
            for series, seqs in sorted(held.items())
            if seqs and bucket(series) in chosen
        ]
    )


def _joined(held: Held) -> int:
    total = 0
    for series, seqs in held.items():
        total ^= fingerprint(series, seqs) if seqs else 0
    return total


# -- the side that asks


class Alignment:
    """Comparisons with one other cache, one after another.

    >>> mine, theirs = ({("a", b"s" * 16): SeqSet.from_ranges([(1, stop)])} for stop in (5, 9))
    >>> alignment = Alignment("**")
    >>> alignment.start(mine, {})
    >>> alignment.take_effects()
    [AskDigest()]
    >>> alignment.receive(digest(theirs, "**", hot=theirs))
    >>> alignment.take_effects()
    [FetchRanges(series=('a', b'ssssssssssssssss'), ranges=[(5, 9)]), AlignmentDone(is_comparable=True)]
    """

    def __init__(self, config: str) -> None:
        self.state = AlignmentState.IDLE
        self._config = config
        self._held: dict[Series, SeqSet] = {}
        self._floors: Mapping[Series, int] = {}
        self._effects: list[Effect] = []

    def start(self, held: Held, floors: Mapping[Series, int]) -> None:
        """Start a comparison with what we hold now. Below its floor a series was evicted: nothing is fetched there."""
        self.state = AlignmentState.DIGEST
        self._held = {series: seqs.copy() for series, seqs in held.items()}
        self._floors = floors
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
                self._end()
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
        elif other.all == _joined(self._held):
            self._end()
        else:
            self._want(other.hot)
            if other.all == _joined(self._held):  # only recent changes differed
                self._end()
            else:
                self.state = AlignmentState.BUCKETS
                self._effects.append(AskBuckets())

    def _compare_buckets(self, others: list[int]) -> None:
        mine = buckets(self._held).fingerprints
        differing = [at for at, (one, other) in enumerate(zip(mine, others, strict=False)) if one != other]
        if differing:
            self.state = AlignmentState.SPANS
            self._effects.append(AskSpans(differing))
        else:
            self._end()

    def _want(self, spans: Iterable[Span]) -> None:
        for span in spans:
            series = (span.topic, span.source)
            held = self._held.setdefault(series, SeqSet())
            floor = self._floors.get(series, 1)
            lacking = [
                part
                for start, stop in span.ranges
                if max(start, floor) < stop
                for part in held.missing(max(start, floor), stop)
            ]
            if lacking:
                self._effects.append(FetchRanges(series, lacking))
            for start, stop in lacking:
                held.add(start, stop)

    def _end(self, is_comparable: bool = True) -> None:
        self.state = AlignmentState.IDLE
        self._effects.append(AlignmentDone(is_comparable))


_: type[Machine[Input, Effect]] = Alignment

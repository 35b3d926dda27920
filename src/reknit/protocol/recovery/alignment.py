"""Alignment: two caches that were apart compare digests, cold to hot, and each asks only for what it lacks.

What a cache holds is a few ranges per stream, so a digest is small: one fingerprint for everything, the ranges of the
streams that changed lately, and, only where the fingerprints differ, one fingerprint per bucket of streams and then
the ranges of those buckets that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, assert_never

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.ledger import Stream
from reknit.seqset import Range, SeqSet
from reknit.wire.recovery import Span

BUCKETS: Final = 64
HOT_MAX: Final = 256
"""So many streams' ranges go with the first digest."""

Held = Mapping[Stream, SeqSet]


class Digest(msgspec.Struct, frozen=True):
    """The first level: everything in one fingerprint, and what changed lately in full."""

    config: str
    """What is held, and how it is digested: digests of different configurations are not compared."""
    all: int
    hot: list[Span] = []


class Buckets(msgspec.Struct, frozen=True):
    """The second level: a fingerprint per bucket."""

    fingerprints: list[int]


class Rows(msgspec.Struct, frozen=True):
    """The third level: what is held of the streams of some buckets."""

    spans: list[Span]


class AskDigest(msgspec.Struct, frozen=True):
    """Ask the other for its digest."""


class AskBuckets(msgspec.Struct, frozen=True):
    """… for its buckets."""


class AskRows(msgspec.Struct, frozen=True):
    """… for the rows of these buckets."""

    buckets: list[int]


class Want(msgspec.Struct, frozen=True):
    """The other has these ranges of a stream, and we do not."""

    stream: Stream
    ranges: list[Range]


class Aligned(msgspec.Struct, frozen=True):
    """There is nothing (more) to compare; `is_comparable` is False where the configurations differ."""

    is_comparable: bool = True


Input = Digest | Buckets | Rows
Effect = AskDigest | AskBuckets | AskRows | Want | Aligned


class State(Enum):
    """Where a comparison stands."""

    IDLE = "idle"
    DIGEST = "digest"
    BUCKETS = "buckets"
    ROWS = "rows"


TRANSITIONS: Final[dict[tuple[State, type[Any]], tuple[State, ...]]] = {
    (State.DIGEST, Digest): (State.IDLE, State.BUCKETS),
    (State.BUCKETS, Buckets): (State.IDLE, State.ROWS),
    (State.ROWS, Rows): (State.IDLE,),
}


# -- the side that is asked


def fingerprint(stream: Stream, seqs: SeqSet) -> int:
    """A number for what is held of a stream; the same ranges give the same number."""
    text = f"{stream[0]}\0{stream[1].hex()}\0{seqs.ranges()}"
    return xxh3_64_intdigest(text.encode())


def bucket(stream: Stream) -> int:
    """Which bucket a stream belongs to."""
    return xxh3_64_intdigest(stream[0].encode() + b"\0" + stream[1]) % BUCKETS


def digest(held: Held, config: str, hot: Iterable[Stream] = ()) -> Digest:
    """The first level. `hot` are the streams that changed lately, the latest first."""
    rows = [Span(*stream, held[stream].ranges(), held[stream].last) for stream in hot if stream in held]
    return Digest(config, _joined(held), rows[:HOT_MAX])


def buckets(held: Held) -> Buckets:
    """The second level."""
    prints = [0] * BUCKETS
    for stream, seqs in held.items():
        prints[bucket(stream)] ^= fingerprint(stream, seqs) if seqs else 0
    return Buckets(prints)


def rows(held: Held, wanted: Iterable[int]) -> Rows:
    """The third level."""
    chosen = set(wanted)
    return Rows(
        [
            Span(*stream, seqs.ranges(), seqs.last)
            for stream, seqs in sorted(held.items())
            if seqs and bucket(stream) in chosen
        ]
    )


def _joined(held: Held) -> int:
    total = 0
    for stream, seqs in held.items():
        total ^= fingerprint(stream, seqs) if seqs else 0
    return total


# -- the side that asks


class Alignment:
    """One comparison after another with one other cache.

    >>> mine, theirs = ({("a", b"s" * 16): SeqSet.from_ranges([(1, stop)])} for stop in (5, 9))
    >>> alignment = Alignment("**")
    >>> alignment.start(mine, {})
    >>> alignment.take_effects()
    [AskDigest()]
    >>> alignment.receive(digest(theirs, "**", hot=theirs))
    >>> alignment.take_effects()
    [Want(stream=('a', b'ssssssssssssssss'), ranges=[(5, 9)]), Aligned(is_comparable=True)]
    """

    def __init__(self, config: str) -> None:
        self.state = State.IDLE
        self._config = config
        self._held: dict[Stream, SeqSet] = {}
        self._floors: Mapping[Stream, int] = {}
        self._effects: list[Effect] = []

    def start(self, held: Held, floors: Mapping[Stream, int]) -> None:
        """Compare what we hold now. Below its floor a stream was let go on purpose: nothing is asked for there."""
        self.state = State.DIGEST
        self._held = {stream: seqs.copy() for stream, seqs in held.items()}
        self._floors = floors
        self._effects.append(AskDigest())

    def receive(self, message: Input) -> None:
        """The other's answer. One that was not asked for changes nothing."""
        if (self.state, type(message)) not in TRANSITIONS:
            return
        match message:
            case Digest():
                self._compare(message)
            case Buckets(fingerprints=fingerprints):
                self._compare_buckets(fingerprints)
            case Rows(spans=spans):
                self._want(spans)
                self._end()
            case _:
                assert_never(message)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    def _compare(self, other: Digest) -> None:
        if other.config != self._config:
            self._end(is_comparable=False)
        elif other.all == _joined(self._held):
            self._end()
        else:
            self._want(other.hot)
            if other.all == _joined(self._held):  # what changed lately was all that differed
                self._end()
            else:
                self.state = State.BUCKETS
                self._effects.append(AskBuckets())

    def _compare_buckets(self, others: list[int]) -> None:
        mine = buckets(self._held).fingerprints
        differing = [at for at, (one, other) in enumerate(zip(mine, others, strict=False)) if one != other]
        if differing:
            self.state = State.ROWS
            self._effects.append(AskRows(differing))
        else:
            self._end()

    def _want(self, spans: Iterable[Span]) -> None:
        for span in spans:
            stream = (span.topic, span.source)
            held = self._held.setdefault(stream, SeqSet())
            floor = self._floors.get(stream, 1)
            lacking = [
                part
                for start, stop in span.ranges
                if max(start, floor) < stop
                for part in held.missing(max(start, floor), stop)
            ]
            if lacking:
                self._effects.append(Want(stream, lacking))
            for start, stop in lacking:
                held.add(start, stop)

    def _end(self, is_comparable: bool = True) -> None:
        self.state = State.IDLE
        self._effects.append(Aligned(is_comparable))

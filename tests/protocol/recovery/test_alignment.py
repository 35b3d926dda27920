"""Alignment: each of two caches finds what it lacks, and fetches nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.ledger import Series
from reknit.protocol.recovery.alignment import (
    SPAN_BUCKETS,
    Alignment,
    AlignmentDone,
    AlignmentState,
    AskBuckets,
    AskDigest,
    AskSpans,
    Digest,
    FetchRanges,
    buckets,
    digest,
    rows,
)
from reknit.protocol.recovery.holdings import Holdings, bucket
from reknit.seqset import SeqSet

ANN: Series = ("plant/a", b"a" * 16)
BOB: Series = ("plant/b", b"b" * 16)
Held = dict[Series, SeqSet]


def align(
    mine: Held, theirs: Held, floors: dict[Series, int] | None = None, hot: list[Series] | None = None
) -> tuple[Held, list[str]]:
    """Returns the ranges that are fetched, and the requests on the way."""
    alignment, other = Alignment("**"), Holdings.of(theirs)
    alignment.start(Holdings.of(mine, floors))
    wanted: Held = {}
    asked: list[str] = []
    while effects := alignment.take_effects():
        for effect in effects:
            match effect:
                case AskDigest():
                    alignment.receive(digest(other, "**", hot or []))
                case AskBuckets():
                    alignment.receive(buckets(other))
                case AskSpans(buckets=chosen):
                    alignment.receive(rows(other, chosen))
                case FetchRanges(series=stream, ranges=ranges):
                    for bounds in ranges:
                        wanted.setdefault(stream, SeqSet()).add(*bounds)
                case AlignmentDone(is_comparable=is_comparable):
                    assert is_comparable
            if not isinstance(effect, FetchRanges | AlignmentDone):
                asked.append(type(effect).__name__)
    assert alignment.state is AlignmentState.IDLE
    return wanted, asked


def held(*ranges: tuple[int, int]) -> SeqSet:
    return SeqSet.from_ranges(ranges)


def test_case_08_digests_of_different_configurations_are_not_compared() -> None:
    alignment = Alignment("plant/**")
    alignment.start(Holdings())
    alignment.take_effects()
    alignment.receive(digest(Holdings.of({ANN: held((1, 9))}), "office/**", [ANN]))
    assert alignment.take_effects() == [AlignmentDone(is_comparable=False)]


def test_case_08_ranges_that_only_this_cache_has_are_not_fetched() -> None:
    assert align({ANN: held((1, 9)), BOB: held((1, 3))}, {ANN: held((1, 5))})[0] == {}


def test_case_08_exactly_the_ranges_that_the_other_has_more_are_fetched() -> None:
    mine = {ANN: held((1, 5), (10, 20))}
    theirs = {ANN: held((3, 12), (15, 30)), BOB: held((7, 9))}
    assert align(mine, theirs)[0] == {ANN: held((5, 10), (20, 30)), BOB: held((7, 9))}


def test_equal_caches_exchange_one_digest() -> None:
    both = {ANN: held((1, 5)), BOB: held((2, 9))}
    assert align(both, dict(both), hot=[ANN]) == ({}, ["AskDigest"])


def test_a_difference_in_recent_changes_needs_no_buckets() -> None:
    cold = {("plant/c", bytes([number]) * 16): held((1, 100)) for number in range(50)}
    wanted, asked = align({**cold, ANN: held((1, 5))}, {**cold, ANN: held((1, 8))}, hot=[ANN])
    assert wanted == {ANN: held((5, 8))}
    assert asked == ["AskDigest"]


def test_only_buckets_that_differ_are_drilled_into() -> None:
    cold = {("plant/c", bytes([number]) * 16): held((1, 100)) for number in range(200)}
    alignment = Alignment("**")
    alignment.start(Holdings.of(cold))
    alignment.take_effects()
    theirs = Holdings.of({**cold, ANN: held((1, 8))})
    alignment.receive(digest(theirs, "**"))
    assert alignment.take_effects() == [AskBuckets()]
    alignment.receive(buckets(theirs))
    [effect] = alignment.take_effects()
    assert isinstance(effect, AskSpans)
    assert len(effect.buckets) == 1
    assert len(rows(theirs, effect.buckets).spans) < 20


def test_evicted_ranges_are_not_fetched_again() -> None:
    assert align({ANN: held((50, 60))}, {ANN: held((1, 70))}, {ANN: 50})[0] == {ANN: held((60, 70))}


def test_an_answer_that_was_not_asked_for_changes_nothing() -> None:
    alignment = Alignment("**")
    alignment.receive(Digest("**", 1))
    alignment.receive(buckets(Holdings()))
    assert alignment.take_effects() == []


def test_buckets_are_asked_for_some_at_a_time_so_that_no_answer_is_large() -> None:
    theirs = {("plant/c", bytes([number]) * 16): held((1, 100)) for number in range(200)}
    wanted, asked = align({}, theirs)
    assert wanted == theirs
    differing = len({bucket(series) for series in theirs})
    assert asked == ["AskDigest", "AskBuckets", *["AskSpans"] * -(-differing // SPAN_BUCKETS)]


@given(st.lists(st.tuples(st.sampled_from([ANN, BOB]), st.integers(1, 40), st.integers(1, 10))))
def test_fingerprints_do_not_depend_on_how_the_ranges_came(
    parts: list[tuple[Series, int, int]],
) -> None:
    one, other = Holdings(), Holdings()
    for series, start, count in parts:
        one.add(series, [(start, start + count)])
    for series, start, count in reversed(parts):
        for seq in range(start, start + count):
            other.add(series, [(seq, seq + 1)])
    assert one.fingerprints == other.fingerprints
    assert one.fingerprint == other.fingerprint


spans = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 10)), max_size=4)
caches = st.dictionaries(st.sampled_from([ANN, BOB, ("plant/c", b"c" * 16)]), spans)


@given(caches, caches, st.booleans())
def test_exactly_the_difference_of_any_two_caches_is_fetched(
    one: dict[Series, list[tuple[int, int]]], two: dict[Series, list[tuple[int, int]]], is_hot: bool
) -> None:
    mine = {s: SeqSet.from_ranges((a, a + n) for a, n in parts) for s, parts in one.items()}
    theirs = {s: SeqSet.from_ranges((a, a + n) for a, n in parts) for s, parts in two.items()}
    expected = {s: lacking for s in theirs if (lacking := theirs[s] - mine.get(s, SeqSet()))}
    assert align(mine, theirs, hot=list(theirs) if is_hot else [])[0] == expected

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.seqset import Range, SeqSet

ranges = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
changes = st.lists(st.tuples(st.sampled_from(["add", "discard"]), ranges), max_size=30)


def seqs_of(found: list[Range]) -> set[int]:
    return {seq for start, stop in found for seq in range(start, stop)}


def check_shape(seqset: SeqSet) -> None:
    runs = seqset.ranges()
    assert all(start < stop for start, stop in runs)
    assert all(left[1] < right[0] for left, right in pairwise(runs))


def build(changed: list[tuple[str, Range]]) -> tuple[SeqSet, set[int]]:
    seqset, model = SeqSet(), set[int]()
    for what, (start, stop) in changed:
        span = set(range(start, stop))
        if what == "add":
            assert seqset.add(start, stop) == bool(span - model)
            model |= span
        else:
            assert seqset.discard(start, stop) == bool(span & model)
            model -= span
        check_shape(seqset)
    return seqset, model


@given(changes)
def test_changes_are_those_of_a_plain_set(changed: list[tuple[str, Range]]) -> None:
    seqset, model = build(changed)
    assert seqs_of(seqset.ranges()) == model
    assert seqset.count == len(model)
    assert seqset.range_count == len(seqset.ranges())
    assert bool(seqset) == bool(model)
    assert (seqset.first, seqset.last) == ((min(model), max(model)) if model else (0, 0))
    assert all((seq in seqset) == (seq in model) for seq in range(-1, 75))


@given(changes, ranges)
def test_questions_about_a_range_are_those_of_a_plain_set(
    changed: list[tuple[str, Range]], asked: Range
) -> None:
    seqset, model = build(changed)
    span = set(range(*asked))
    assert seqset.covers(*asked) == (span <= model)
    assert seqs_of(seqset.overlap(*asked)) == span & model
    assert seqs_of(seqset.missing(*asked)) == span - model
    check_shape(SeqSet.from_ranges(seqset.missing(*asked)))
    assert seqset.first_missing(asked[0]) == next(seq for seq in range(asked[0], 200) if seq not in model)


@given(changes, changes)
def test_whole_sets_combine_as_plain_sets(one: list[tuple[str, Range]], two: list[tuple[str, Range]]) -> None:
    (left, left_model), (right, right_model) = build(one), build(two)
    for made, model in [
        (left | right, left_model | right_model),
        (left & right, left_model & right_model),
        (left - right, left_model - right_model),
    ]:
        check_shape(made)
        assert seqs_of(made.ranges()) == model
        assert made.count == len(model)
    assert (left == right) == (left_model == right_model)


@given(changes, ranges)
def test_a_copy_is_independent(changed: list[tuple[str, Range]], extra: Range) -> None:
    seqset, model = build(changed)
    copy = seqset.copy()
    assert copy == seqset
    copy.add(*extra)
    copy.discard(0, 30)
    assert seqs_of(seqset.ranges()) == model


def test_in_order_adds_stay_one_run() -> None:
    seqset = SeqSet()
    for start in range(1, 100_001, 10):
        assert seqset.add(start, start + 10)
    assert seqset.ranges() == [(1, 100_001)]
    assert seqset.count == 100_000


def test_seqs_of_64_bits_are_held() -> None:
    seqset = SeqSet.from_ranges([(2**64 - 10, 2**64), (1, 2)])
    assert seqset.last == 2**64 - 1
    assert seqset.count == 11


@pytest.mark.parametrize("ask", ["add", "discard", "covers", "overlap", "missing"])
def test_a_reversed_range_is_refused(ask: str) -> None:
    with pytest.raises(ValueError, match=r"range \[5, 3\) ends before it starts"):
        getattr(SeqSet(), ask)(5, 3)


def test_an_empty_range_changes_nothing() -> None:
    seqset = SeqSet.from_ranges([(1, 4)])
    assert not seqset.add(9, 9)
    assert not seqset.discard(2, 2)
    assert seqset.covers(9, 9)
    assert seqset.ranges() == [(1, 4)]


def test_a_set_is_not_hashable_and_only_equals_its_kind() -> None:
    with pytest.raises(TypeError):
        hash(SeqSet())
    assert SeqSet() != set()


def test_repr_builds_an_equal_set() -> None:
    seqset = SeqSet.from_ranges([(1, 4), (6, 9)])
    assert eval(repr(seqset)) == seqset

"""The sizes of ranges of events, in whatever order they become known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.protocol.queues.event_sizes import EventSizes

ranges = st.tuples(st.integers(1, 40), st.integers(1, 10), st.sampled_from([1.0, 2.0, 8.0]))


@given(st.lists(ranges, max_size=20), st.integers(1, 50), st.integers(0, 20))
def test_the_size_that_was_noted_first_counts(
    noted: list[tuple[int, int, float]], start: int, count: int
) -> None:
    sizes, known = EventSizes(), dict[int, float]()
    for first, length, size in noted:
        sizes.note(first, first + length, size)
        for seq in range(first, first + length):
            known.setdefault(seq, size)
    assert sizes.total(start, start + count) == sum(
        known.get(seq, 0.0) for seq in range(start, start + count)
    )


@given(st.lists(ranges, max_size=20), st.integers(1, 50))
def test_what_is_forgotten_does_not_change_what_follows(
    noted: list[tuple[int, int, float]], seq: int
) -> None:
    sizes = EventSizes()
    for first, length, size in noted:
        sizes.note(first, first + length, size)
    before = sizes.total(seq, 100)
    sizes.forget_before(seq)
    assert sizes.total(seq, 100) == before


def test_events_of_equal_size_are_one_range() -> None:
    sizes = EventSizes()
    for first in range(1, 10_001, 10):
        sizes.note(first, first + 10, 64.0)
    assert len(sizes._starts) == 1

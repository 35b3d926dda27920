from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.ledger import Ledger
from reknit.store.series import EXTENT_BYTES, Streams
from tests.store.journals import SOURCE_A, SOURCE_B, batch


def extents(streams: Streams) -> list[tuple[int, int, int, int]]:
    return [(one.first, one.stop, one.position, one.end) for one in streams.fresh]


def test_batches_that_follow_each_other_are_one_extent() -> None:
    streams = Streams(Ledger())
    made = [batch(first, 10) for first in (1, 11, 21)]
    length = len(made[0].data)
    entries, events = streams.note(0, [one.head for one in made])
    assert [entry.position for entry in entries] == [0, length, 2 * length]
    assert (events, extents(streams)) == (30, [(1, 31, 0, 3 * length)])
    streams.note(3 * length, [batch(31, 10).head])
    assert extents(streams) == [(1, 41, 0, 4 * length)]


def test_other_streams_may_lie_between() -> None:
    streams = Streams(Ledger())
    made = [batch(1), batch(1, source=SOURCE_B), batch(2), batch(2, source=SOURCE_B)]
    streams.note(0, [one.head for one in made])
    assert [(one.first, one.stop) for one in streams.fresh] == [(1, 3), (1, 3)]


def test_a_gap_or_a_new_segment_begins_an_extent() -> None:
    streams = Streams(Ledger())
    streams.note(0, [batch(1).head, batch(3).head])
    streams.segment_start = 500
    streams.note(500, [batch(4).head])
    assert [(one.first, one.stop) for one in streams.fresh] == [(1, 2), (3, 4), (4, 5)]


def test_extents_are_short_in_the_log() -> None:
    streams = Streams(Ledger())
    made = [batch(first, 100, size=100) for first in range(1, 5_001, 100)]
    streams.note(0, [one.head for one in made])
    assert len(streams.fresh) > 3
    longest = max(one.end - one.position for one in streams.fresh)
    assert longest <= EXTENT_BYTES + 2 * len(made[0].data)


def test_what_is_saved_leaves_memory_and_what_came_since_stays() -> None:
    streams = Streams(Ledger())
    streams.note(0, [batch(1).head, batch(1, source=SOURCE_B).head])
    sealed = streams.seal()
    streams.note(500, [batch(2).head])
    streams.saved(sealed)
    assert [(one.first, one.stop) for one in streams.fresh] == [(2, 3)]
    stream = streams.get("t/a", SOURCE_A)
    assert stream is not None
    assert stream.extents == streams.fresh
    assert len(list(streams)) == 2


@given(
    ranges=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 8)), max_size=20),
    start=st.integers(0, 70),
    size=st.integers(1, 20),
)
def test_overlapping_extents_are_found_in_any_order(
    ranges: list[tuple[int, int]], start: int, size: int
) -> None:
    streams = Streams(Ledger())
    position = 0
    for first, count in ranges:
        streams.put("t/a", SOURCE_A, first, first + count, position, position + 8)
        position += 8
    stream = streams.make("t/a", SOURCE_A)
    found = stream.overlapping(start, start + size)
    expected = [one for one in streams.fresh if one.first < start + size and one.stop > start]
    assert sorted(map(id, found)) == sorted(map(id, expected))
    assert [one.first for one in found] == sorted(one.first for one in found)

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.ledger import Ledger
from reknit.store.index.series import EXTENT_BYTES, SeriesTable
from tests.store.journals import SOURCE_A, SOURCE_B, batch


def extents(table: SeriesTable) -> list[tuple[int, int, int, int]]:
    return [(one.first, one.stop, one.position, one.end) for one in table.fresh]


def test_batches_that_follow_each_other_are_one_extent() -> None:
    table = SeriesTable(Ledger())
    made = [batch(first, 10) for first in (1, 11, 21)]
    length = len(made[0].data)
    entries, events = table.add(0, [one.head for one in made])
    assert [entry.position for entry in entries] == [0, length, 2 * length]
    assert (events, extents(table)) == (30, [(1, 31, 0, 3 * length)])
    table.add(3 * length, [batch(31, 10).head])
    assert extents(table) == [(1, 41, 0, 4 * length)]


def test_other_table_may_lie_between() -> None:
    table = SeriesTable(Ledger())
    made = [batch(1), batch(1, source=SOURCE_B), batch(2), batch(2, source=SOURCE_B)]
    table.add(0, [one.head for one in made])
    assert [(one.first, one.stop) for one in table.fresh] == [(1, 3), (1, 3)]


def test_a_gap_or_a_new_segment_begins_an_extent() -> None:
    table = SeriesTable(Ledger())
    table.add(0, [batch(1).head, batch(3).head])
    table.segment_start = 500
    table.add(500, [batch(4).head])
    assert [(one.first, one.stop) for one in table.fresh] == [(1, 2), (3, 4), (4, 5)]


def test_extents_are_short_in_the_log() -> None:
    table = SeriesTable(Ledger())
    made = [batch(first, 100, size=100) for first in range(1, 5_001, 100)]
    table.add(0, [one.head for one in made])
    assert len(table.fresh) > 3
    longest = max(one.end - one.position for one in table.fresh)
    assert longest <= EXTENT_BYTES + 2 * len(made[0].data)


def test_what_is_saved_leaves_memory_and_what_came_since_stays() -> None:
    table = SeriesTable(Ledger())
    table.add(0, [batch(1).head, batch(1, source=SOURCE_B).head])
    sealed = table.seal()
    table.add(500, [batch(2).head])
    table.saved(sealed)
    assert [(one.first, one.stop) for one in table.fresh] == [(2, 3)]
    stream = table.get("t/a", SOURCE_A)
    assert stream is not None
    assert stream.extents == table.fresh
    assert len(list(table)) == 2


@given(
    ranges=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 8)), max_size=20),
    start=st.integers(0, 70),
    size=st.integers(1, 20),
)
def test_overlapping_extents_are_found_in_any_order(
    ranges: list[tuple[int, int]], start: int, size: int
) -> None:
    table = SeriesTable(Ledger())
    position = 0
    for first, count in ranges:
        table.put("t/a", SOURCE_A, first, first + count, position, position + 8)
        position += 8
    stream = table.make("t/a", SOURCE_A)
    found = stream.overlapping(start, start + size)
    expected = [one for one in table.fresh if one.first < start + size and one.stop > start]
    assert sorted(map(id, found)) == sorted(map(id, expected))
    assert [one.first for one in found] == sorted(one.first for one in found)

"""A queue's place in the journal."""

from reknit.batch import Head
from reknit.ledger import Series
from reknit.protocol.queues.cursor import Cursor
from reknit.seqset import SeqSet

SOURCE = b"s" * 16
SERIES: Series = ("plant/a", SOURCE)


def head(first: int, count: int = 1) -> Head:
    return Head(SOURCE, "plant/a", first, count, 100, 0)


def test_live_cursor_stays_live_until_it_has_to_stop() -> None:
    cursor = Cursor(-1)
    cursor.read_to(100)
    assert cursor.is_live
    cursor.stop_at(150, priority=4)
    assert (cursor.is_live, cursor.position, cursor.priority) == (False, 150, 4)
    cursor.read_to(200)
    assert cursor.position == 200
    cursor.go_live()
    assert cursor.is_live


def test_retention_moves_the_cursor_and_ends_its_scan() -> None:
    cursor = Cursor(0)
    cursor.scan_began()
    assert not cursor.can_read
    cursor.trimmed(100)
    assert (cursor.position, cursor.is_scanning, cursor.can_read) == (100, False, True)


def test_batch_that_was_delivered_in_part_is_wanted_from_there() -> None:
    cursor = Cursor(0)
    cursor.stop_within(0, 4)
    assert cursor.wanted(0, head(1, 8)) == [(4, 9)]
    assert cursor.wanted(100, head(9, 2)) == [(9, 11)]


def test_events_that_ended_before_are_left_out_until_the_cursor_is_beyond() -> None:
    cursor = Cursor(0)
    cursor.resume(100, lambda series: SeqSet.from_ranges([(2, 4)]))
    assert cursor.is_resuming
    assert cursor.wanted(0, head(1, 5)) == [(1, 2), (4, 6)]
    assert not cursor.is_fresh(0)
    cursor.read_to(100)
    assert not cursor.is_resuming
    assert cursor.is_fresh(100)


def test_early_events_are_left_out_until_the_cursor_has_reached_them() -> None:
    cursor = Cursor(0)
    cursor.pass_early(SERIES, 3, 5)
    assert cursor.is_early(SERIES)
    assert cursor.not_early(SERIES, [(1, 6)]) == [(1, 3), (5, 6)]
    assert cursor.not_early(SERIES, [(1, 6)]) == [(1, 3), (5, 6)]
    cursor.reach(SERIES, 4)
    assert cursor.not_early(SERIES, [(4, 6)]) == [(5, 6)]
    cursor.reach(SERIES, 6)
    assert not cursor.has_early


def test_nothing_is_early_for_a_live_cursor() -> None:
    cursor = Cursor(0)
    cursor.pass_early(SERIES, 3, 5)
    cursor.go_live()
    assert not cursor.has_early


def test_batch_is_next_if_everything_before_it_was_passed() -> None:
    cursor = Cursor(0)
    published = SeqSet.from_ranges([(1, 9)])
    assert cursor.is_next(SERIES, head(1), published)
    assert not cursor.is_next(SERIES, head(2), published)
    cursor.pass_to(SERIES, 5)
    assert cursor.is_next(SERIES, head(5), published)
    assert cursor.first_owed(SERIES) == 5
    assert not Cursor(0, after={SOURCE: 3}).is_next(SERIES, head(1), published)


def test_events_before_the_first_owed_one_are_left_out_however_late_they_come() -> None:
    cursor = Cursor(-1)
    cursor.leave_out_before(SERIES, 5)
    assert cursor.wanted(900, head(3, 4)) == [(5, 7)]
    assert cursor.wanted(900, head(1, 2)) == []
    assert not cursor.is_fresh(900)
    assert not cursor.is_next(SERIES, head(1), SeqSet.from_ranges([(1, 9)]))
    assert cursor.first_owed(SERIES) == 5

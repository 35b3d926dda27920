"""One subscriber's queue: a cursor over the journal and the exceptions to it."""

from collections.abc import Mapping

from reknit.batch import Head
from reknit.ledger import Series
from reknit.protocol.queues.cursor import EndedBefore
from reknit.protocol.queues.queue import Queue
from reknit.seqset import SeqSet
from reknit.topic import Pattern

SOURCE = b"s" * 16
SERIES: Series = ("plant/a", SOURCE)


def queue(
    cursor: int = 0, credit: int = 1000, floor: int = 0, after: Mapping[bytes, int] | None = None
) -> Queue:
    return Queue("peer", 1, "audit", Pattern("plant/**"), cursor, credit, floor, after)


def deliver(one: Queue, position: int, batch: Head) -> None:
    one.deliver(position, SERIES, batch.first, batch.stop)


def ended(start: int, stop: int) -> EndedBefore:
    return lambda series: SeqSet.from_ranges([(start, stop)] if series == SERIES else [])


def head(first: int, count: int = 1) -> Head:
    return Head(SOURCE, "plant/a", first, count, 100, 0)


def test_only_delivered_events_can_end_and_only_once() -> None:
    one = queue()
    deliver(one, 0, head(1, 5))
    assert one.end(SERIES, 2, 9) == [(2, 6)]
    assert one.end(SERIES, 2, 9) == []
    assert one.unsettled.count == 1


def test_floor_is_the_first_batch_that_has_not_ended() -> None:
    one = queue()
    deliver(one, 0, head(1))
    deliver(one, 100, head(2))
    one.cursor.read_to(200)
    one.end(SERIES, 2, 3)
    assert one.move_floor(300) == 0
    one.end(SERIES, 1, 2)
    assert one.move_floor(300) == 200


def test_floor_of_a_live_queue_is_the_journals_end() -> None:
    assert queue(cursor=-1).move_floor(300) == 300


def test_floor_never_moves_back() -> None:
    one = queue(cursor=-1)
    one.move_floor(300)
    deliver(one, 200, head(1))
    assert one.move_floor(300) == 300


def test_held_events_are_open_and_keep_the_floor() -> None:
    one = queue(cursor=-1, floor=50)
    one.hold(SERIES, 1, 4)
    assert one.move_floor(300) == 50
    assert one.end(SERIES, 1, 4) == [(1, 4)]
    assert one.move_floor(300) == 300


def test_held_events_that_have_ended_stay_ended() -> None:
    one = queue()
    one.resume(0, ended(1, 3))
    one.hold(SERIES, 1, 5)
    assert one.end(SERIES, 1, 5) == [(3, 5)]


def test_wanted_events_have_neither_ended_nor_are_held() -> None:
    one = queue()
    one.resume(1000, ended(1, 3))
    one.hold(SERIES, 5, 6)
    assert one.wanted(0, head(1, 8)) == [(3, 5), (6, 9)]


def test_batch_from_after_the_resumption_is_wanted_as_a_whole() -> None:
    one = queue()
    one.resume(1000, ended(1, 3))
    assert one.wants_all(1000, head(1, 8))
    assert not one.wants_all(999, head(1, 8))


def test_events_before_the_checkpoint_are_skipped() -> None:
    one = queue(after={SOURCE: 4})
    assert one.wanted(0, head(1, 4)) == []
    assert one.wanted(0, head(3, 4)) == [(5, 7)]


def test_retries_are_taken_in_the_order_of_their_time() -> None:
    one = queue()
    one.retry_at(SERIES, 1, 2, due=2.0)
    one.retry_at(SERIES, 2, 3, due=1.0)
    one.retry_at(SERIES, 3, 4, due=9.0)
    assert [retry.start for _ in range(3) if (retry := one.retries.pop_due(10.0)) is not None] == [2, 1, 3]


def test_room_is_unused_credit_and_zero_while_blocked() -> None:
    one = queue(credit=300)
    one.credit.use(100)
    assert one.room == 200
    one.credit.block(True)
    assert one.room == 0


def test_in_hand_are_events_that_are_open_or_still_ahead() -> None:
    one = queue()
    deliver(one, 0, head(1, 4))
    one.end(SERIES, 1, 3)
    published = {SERIES: SeqSet.from_ranges([(1, 10)]), ("car/1", SOURCE): SeqSet.from_ranges([(1, 2)])}
    assert one.in_hand(published) == {SERIES: SeqSet.from_ranges([(3, 10)])}

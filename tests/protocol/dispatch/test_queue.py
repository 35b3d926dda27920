"""One subscriber's queue: a cursor over the journal and the exceptions to it."""

from reknit.batch import Head
from reknit.ledger import Stream
from reknit.protocol.dispatch.queue import Queue
from reknit.seqset import SeqSet
from reknit.topic import Pattern

SOURCE = b"s" * 16
STREAM: Stream = ("plant/a", SOURCE)


def queue(cursor: int = 0, credit: int = 1000) -> Queue:
    return Queue("peer", 1, "audit", Pattern("plant/**"), cursor, credit)


def head(first: int, count: int = 1) -> Head:
    return Head(SOURCE, "plant/a", first, count, 100, 0)


def test_only_what_was_handed_out_can_end_and_only_once() -> None:
    one = queue()
    one.hand_out(0, head(1, 5))
    assert one.end(STREAM, 2, 9) == [(2, 6)]
    assert one.end(STREAM, 2, 9) == []
    assert one.open_count == 1


def test_floor_is_the_first_batch_that_has_not_ended() -> None:
    one = queue()
    one.hand_out(0, head(1))
    one.hand_out(100, head(2))
    one.cursor = 200
    one.end(STREAM, 2, 3)
    assert one.move_floor(300) == 0
    one.end(STREAM, 1, 2)
    assert one.move_floor(300) == 200


def test_floor_of_a_live_queue_is_the_journals_end() -> None:
    assert queue(cursor=-1).move_floor(300) == 300


def test_floor_never_moves_back() -> None:
    one = queue(cursor=-1)
    one.move_floor(300)
    one.hand_out(200, head(1))
    assert one.move_floor(300) == 300


def test_held_events_are_open_and_keep_the_floor() -> None:
    one = queue(cursor=-1)
    one.floor = 50
    one.hold(STREAM, 1, 4)
    assert one.move_floor(300) == 50
    assert one.end(STREAM, 1, 4) == [(1, 4)]
    assert one.move_floor(300) == 300


def test_held_events_that_have_ended_stay_ended() -> None:
    one = queue()
    one.ended[STREAM] = SeqSet.from_ranges([(1, 3)])
    one.hold(STREAM, 1, 5)
    assert one.end(STREAM, 1, 5) == [(3, 5)]


def test_wanted_is_what_neither_ended_nor_is_held() -> None:
    one = queue()
    one.resumed_to = 1000
    one.ended[STREAM] = SeqSet.from_ranges([(1, 3)])
    one.hold(STREAM, 5, 6)
    assert one.wanted(0, head(1, 8)) == [(3, 5), (6, 9)]


def test_what_came_after_the_resumption_is_wanted_as_a_whole() -> None:
    one = queue()
    one.resumed_to = 1000
    one.ended[STREAM] = SeqSet.from_ranges([(1, 3)])
    assert one.wants_all(1000, head(1, 8))
    assert not one.wants_all(999, head(1, 8))


def test_what_is_before_the_checkpoint_is_skipped() -> None:
    one = queue()
    one.after[SOURCE] = 4
    assert one.wanted(0, head(1, 4)) == []
    assert one.wanted(0, head(3, 4)) == [(5, 7)]


def test_what_is_due_comes_in_the_order_of_its_time() -> None:
    one = queue()
    one.put_again(STREAM, 1, 2, due=2.0)
    one.put_again(STREAM, 2, 3, due=1.0)
    one.put_again(STREAM, 3, 4, due=9.0)
    assert [one.pop_again().start for _ in range(3)] == [2, 1, 3]


def test_room_is_credit_less_what_was_sent_and_none_while_blocked() -> None:
    one = queue(credit=300)
    one.sent = 100
    assert one.room == 200
    one.is_blocked = True
    assert one.room == 0


def test_in_hand_is_what_is_open_or_still_ahead() -> None:
    one = queue()
    one.hand_out(0, head(1, 4))
    one.end(STREAM, 1, 3)
    published = {STREAM: SeqSet.from_ranges([(1, 10)]), ("car/1", SOURCE): SeqSet.from_ranges([(1, 2)])}
    assert one.in_hand(published) == {STREAM: SeqSet.from_ranges([(3, 10)])}

"""The events that a queue's cursor has passed and that have not ended."""

from reknit.ledger import Series
from reknit.protocol.queues.unsettled import Unsettled

SERIES: Series = ("plant/a", b"s" * 16)


def delivered(start: int = 1, stop: int = 5) -> Unsettled:
    unsettled = Unsettled(floor=0)
    unsettled.deliver(0, SERIES, start, stop)
    return unsettled


def test_delivered_events_are_in_flight_until_they_end() -> None:
    unsettled = delivered(1, 5)
    assert unsettled.in_flight == 4
    assert unsettled.end(SERIES, 1, 3) == [(1, 3)]
    assert (unsettled.in_flight, unsettled.count) == (2, 2)


def test_events_set_aside_are_open_and_not_in_flight() -> None:
    unsettled = Unsettled(floor=0)
    unsettled.set_aside(0, SERIES, 1, 5)
    assert (unsettled.in_flight, unsettled.count) == (0, 4)
    unsettled.redeliver(SERIES, 1, 3)
    assert unsettled.in_flight == 2
    assert unsettled.waiting_within(SERIES, 1, 5) == [(3, 5)]
    assert unsettled.in_flight_within(SERIES, 1, 5) == [(1, 3)]


def test_events_given_back_wait_and_can_end_while_they_do() -> None:
    unsettled = delivered(1, 5)
    unsettled.give_back(SERIES, 2, 4)
    assert unsettled.in_flight == 2
    assert unsettled.end(SERIES, 1, 5) == [(1, 5)]
    assert (unsettled.in_flight, unsettled.count, unsettled.has_waiting) == (0, 0, False)


def test_resumed_events_are_counted_once() -> None:
    unsettled = delivered(1, 3)
    unsettled.resume(SERIES, 2, 6)
    assert unsettled.in_flight == 5
    assert unsettled.open_within(SERIES, 1, 9) == [(1, 6)]


def test_only_events_in_flight_become_overdue() -> None:
    unsettled = delivered(1, 5)
    unsettled.give_back(SERIES, 1, 2)
    unsettled.expire(SERIES, 1, 4)
    assert unsettled.overdue_within(SERIES, 1, 9) == [(2, 4)]
    unsettled.end(SERIES, 2, 3)
    assert unsettled.overdue_within(SERIES, 1, 9) == [(3, 4)]


def test_floor_waits_for_early_events_too() -> None:
    unsettled = delivered(1, 2)
    unsettled.set_aside(300, SERIES, 9, 10, is_early=True)
    unsettled.end(SERIES, 1, 2)
    assert unsettled.has_early
    assert unsettled.move_floor(500) == 300
    unsettled.end(SERIES, 9, 10)
    assert unsettled.move_floor(500) == 500
    assert not unsettled.has_early


def test_bytes_are_with_the_subscriber_from_delivery_to_the_end() -> None:
    unsettled = Unsettled(floor=0, bytes_max=1000)
    unsettled.deliver(0, SERIES, 1, 5, 100.0)
    unsettled.deliver(10, SERIES, 5, 7, 200.0)
    assert (unsettled.in_flight_bytes, unsettled.room) == (800.0, 200.0)
    unsettled.give_back(SERIES, 4, 6)
    assert unsettled.in_flight_bytes == 500.0
    unsettled.redeliver(SERIES, 4, 5)
    assert unsettled.in_flight_bytes == 600.0
    unsettled.end(SERIES, 1, 6)
    assert unsettled.in_flight_bytes == 200.0, "the one that waited was not counted"
    unsettled.end(SERIES, 6, 7)
    assert (unsettled.in_flight_bytes, unsettled.room) == (0.0, 1000.0)


def test_a_small_event_that_ends_does_not_make_room_for_a_large_one() -> None:
    unsettled = Unsettled(floor=0, bytes_max=1000)
    unsettled.deliver(0, SERIES, 1, 2, 900.0)
    unsettled.deliver(10, SERIES, 2, 102, 1.0)
    unsettled.end(SERIES, 2, 102)
    assert unsettled.in_flight_bytes == 900.0


def test_events_that_were_set_aside_count_once_they_are_delivered() -> None:
    unsettled = Unsettled(floor=0, bytes_max=1000)
    unsettled.set_aside(10, SERIES, 5, 9, 50.0, is_early=True)
    unsettled.set_aside(0, SERIES, 1, 5, 100.0)
    assert unsettled.in_flight_bytes == 0.0
    unsettled.redeliver(SERIES, 3, 7)
    assert unsettled.in_flight_bytes == 300.0

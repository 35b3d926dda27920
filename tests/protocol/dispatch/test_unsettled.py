"""The events that a queue's cursor has passed and that have not ended."""

from reknit.ledger import Series
from reknit.protocol.dispatch.unsettled import Unsettled

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

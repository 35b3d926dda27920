"""The events that an application has, and those that come back to it."""

from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.ledger import Series
from reknit.protocol.subscribe.held_events import HeldEvents

SERIES: Series = ("plant/a", b"s" * 16)


def held(start: int = 1, stop: int = 5) -> HeldEvents:
    events = HeldEvents()
    events.deliver(SERIES, start, stop)
    return events


def test_only_held_events_are_settled_and_once() -> None:
    events = held(1, 5)
    assert events.settle(SERIES, 3, 9) == [(3, 5)]
    assert events.settle(SERIES, 3, 9) == []
    assert events.held_ranges() == [(SERIES, 1, 3)]


def test_events_given_back_are_delivered_again_once() -> None:
    events = held(1, 5)
    events.settle(SERIES, 1, 3)
    events.give_back(SERIES, 1, 3)
    assert events.ranges() == [(SERIES, 3, 5), (SERIES, 1, 3)]
    assert events.first_unsettled() == [(SERIES, 3), (SERIES, 1)]
    assert events.redeliver(SERIES, 1, 9) == [(1, 3)]
    assert events.redeliver(SERIES, 1, 9) == []


def test_revoked_events_can_end_until_they_are_delivered_again() -> None:
    events = held(1, 5)
    events.revoke(SERIES, 1, 4)
    assert events.has_revoked(SERIES)
    assert events.end_revoked(SERIES, 1, 2) == [(1, 2)]
    assert events.redeliver(SERIES, 1, 5) == [(2, 4)]
    assert events.end_revoked(SERIES, 1, 5) == []
    assert not events.has_revoked(SERIES)


def test_lost_events_do_not_come_back() -> None:
    events = held(1, 5)
    events.revoke(SERIES, 1, 3)
    assert events.lose(SERIES, 1, 9) == [(1, 3)]
    assert events.redeliver(SERIES, 1, 9) == []


def again(events: HeldEvents, first: int, count: int, attempt: int) -> None:
    batch = Batch.build(SERIES[1], SERIES[0], first, [b"x"] * count, 0).delivered(Delivery(attempt))
    events.deliver(SERIES, batch.first, batch.stop)
    events.note_attempt(batch)


def test_an_old_attempt_settles_nothing_that_came_again() -> None:
    events = held(1, 5)
    events.settle(SERIES, 1, 3)
    again(events, 1, 2, attempt=3)
    assert events.settle_attempt(SERIES, 1, 5, attempt=1) == [(3, 5)]
    assert events.settle_attempt(SERIES, 1, 2, attempt=3) == [(1, 2)]
    assert events.settle_attempt(SERIES, 1, 3, attempt=0) == [(2, 3)]


def test_attempts_are_forgotten_with_their_events() -> None:
    events = held(1, 2)
    again(events, 1, 1, attempt=3)
    events.revoke(SERIES, 1, 2)
    events.deliver(SERIES, 1, 2)
    assert events.settle_attempt(SERIES, 1, 2, attempt=1) == [(1, 2)]

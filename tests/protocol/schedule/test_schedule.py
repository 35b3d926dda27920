"""The schedule: what is due, in which order, and what is cancelled."""

from __future__ import annotations

from reknit.protocol.machine import JOURNAL
from reknit.protocol.schedule.schedule import (
    EVENTS_MAX,
    CancelEvents,
    EventsCancelled,
    EventsMoved,
    PublishDue,
    PutBack,
    RefuseEvents,
    Schedule,
    ScheduleEvents,
)
from reknit.topic import Pattern

TOPIC = "reknit/scheduled/alarm/a"
S = 1_000_000


def made(*due_s: float, events_max: int = 0) -> Schedule:
    schedule = Schedule(zero_us=0, events_max=events_max)
    times = [round(one * S) for one in due_s]
    schedule.receive(ScheduleEvents(TOPIC, b"s", 1, 40, times), JOURNAL, 0.0)
    return schedule


def due(schedule: Schedule, now: float) -> list[int]:
    schedule.tick(now)
    return [
        one.seq for made in schedule.take_effects() if isinstance(made, PublishDue) for one in made.events
    ]


def test_events_are_due_in_the_order_of_their_times() -> None:
    schedule = made(3, 1, 2, 1)
    assert due(schedule, 0.99) == []
    assert due(schedule, 2) == [2, 4, 3]
    assert due(schedule, 5) == [1]
    assert schedule.next_deadline() is None


def test_a_cancelled_event_wakes_nobody() -> None:
    """A node whose journal was full looked at it again and again without a pause."""
    schedule = made(1, 2)
    schedule.receive(CancelEvents(Pattern("**"), frozenset({"73:1"})), JOURNAL, 0.0)
    assert schedule.next_deadline() == 2.0
    schedule.receive(CancelEvents(Pattern("**")), JOURNAL, 0.0)
    assert schedule.next_deadline() is None


def test_a_clock_that_was_set_makes_events_due() -> None:
    schedule = made(100)
    assert schedule.next_deadline() == 10.0, "the clock is looked at"
    schedule.set_clock(99 * S)
    assert due(schedule, 1.0) == [1]


def test_cancelled_events_are_never_due() -> None:
    schedule = made(1, 2, 3)
    one = next(schedule.matching(Pattern("alarm/*")))
    schedule.receive(CancelEvents(Pattern("alarm/*"), frozenset([one.id])), "admin", 0.0)
    schedule.receive(CancelEvents(Pattern("other/**")), "admin", 0.0)
    first, second = schedule.take_effects()
    assert isinstance(first, EventsCancelled)
    assert isinstance(second, EventsCancelled)
    assert [one.seq for one in first.events] == [1]
    assert second.events == []
    assert due(schedule, 9) == [2, 3]


def test_events_that_could_not_be_written_are_due_again() -> None:
    schedule = made(1, 2)
    schedule.tick(3)
    [effect] = schedule.take_effects()
    assert isinstance(effect, PublishDue)
    schedule.receive(PutBack(effect.events), JOURNAL, 3)
    assert due(schedule, 3) == [1, 2]


def test_moved_events_keep_time_and_id() -> None:
    schedule = made(5, 5)
    old = schedule.before(41, 1)
    assert schedule.before(40, 9) == []
    schedule.receive(EventsMoved(old, b"n", 70, 90), JOURNAL, 0.0)
    assert [one.id for one in schedule.before(99, 9)] == ["73:2", "73:1"]
    assert schedule.first_position() == 40
    assert due(schedule, 5) == [70, 2], "it is still published first"
    assert schedule.first_position() is None


def test_events_beyond_the_limit_are_refused() -> None:
    schedule = made(1, 2, 3, events_max=2)
    [effect] = schedule.take_effects()
    assert isinstance(effect, RefuseEvents)
    assert [one.seq for one in effect.events] == [3]
    assert due(schedule, 9) == [1, 2]


def test_many_due_events_take_several_turns() -> None:
    schedule = made(*[1.0] * (EVENTS_MAX + 5))
    assert len(due(schedule, 1.0)) == EVENTS_MAX
    deadline = schedule.next_deadline()
    assert deadline is not None
    assert deadline <= 1.0
    assert len(due(schedule, 1.0)) == 5


def test_pages_follow_the_times() -> None:
    schedule = made(3, 1, 2)
    first = schedule.page(Pattern("alarm/**"), (0, 0), 2)
    rest = schedule.page(Pattern("alarm/**"), first[-1][:2], 2)
    assert [one.seq for one in (*first, *rest)] == [2, 3, 1]

"""A subscription on a node whose journal is another one than before: restored, empty, or that of another node."""

from reknit.outcome import Outcome
from reknit.protocol.subscribe.resume_point import ResumePoint
from reknit.protocol.subscribe.subscriber import Delivered
from reknit.wire.messages import Held, Settle, Start
from tests.protocol.subscribe.test_subscriber import SOURCE, STREAM, batch, give, handed, live, reconnect

PLACE = SOURCE.hex()


def test_a_position_is_used_only_in_the_journal_that_it_is_of() -> None:
    point = ResumePoint(Start())
    point.connect("one", {}, is_durable=False)
    point.open(5000)
    assert point.connect("two", {PLACE: 9}, is_durable=False) == Start(checkpoint={PLACE: 9})
    # the connection broke before the node confirmed the subscription
    assert point.connect("two", {PLACE: 9}, is_durable=False) == Start(checkpoint={PLACE: 9})
    point.open(100)
    point.move(200)
    assert point.connect("two", {PLACE: 9}, is_durable=False) == Start(position=200, epoch="two")


def test_a_durable_subscriber_gets_again_what_another_journal_does_not_know_as_accepted() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 100))
    subscriber.settle(STREAM, 1, 4, Outcome.ACCEPTED)
    subscriber.flush()
    request, _ = reconnect(subscriber, "restored")
    assert request.start == Start(checkpoint={PLACE: 3})
    assert handed(give(subscriber, Delivered([batch(2, 2)], 60))) == [(2, 4)]
    assert subscriber.checkpoint() == {PLACE: 3}


def test_outcomes_that_another_journal_got_before_the_events_are_said_again() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 4)], 100, ordered_to=5))
    subscriber.settle(STREAM, 1, 4, Outcome.ACCEPTED)
    subscriber.flush()
    reconnect(subscriber, "empty")
    effects = give(subscriber, Delivered([batch(1, 4)], 60, ordered_to=5))
    assert handed(effects) == [], "the application has the last one, and ended the others"
    [again] = [one for one in effects if isinstance(getattr(one, "message", None), Settle)]
    assert [(row.start, row.stop, row.outcome) for row in again.message.rows] == [  # type: ignore[union-attr]
        (1, 4, int(Outcome.ACCEPTED))
    ]


def test_what_was_given_back_is_left_to_the_other_journal() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 4)], 100))
    subscriber.settle(STREAM, 1, 2, Outcome.ACCEPTED)
    subscriber.settle(STREAM, 2, 3, Outcome.RELEASED, attempt=1)
    subscriber.flush()
    request, effects = reconnect(subscriber, "restored")
    assert request.held == [Held(*STREAM, 3, 5), Held(*STREAM, 1, 2)]
    rows = [
        (row.start, row.stop, row.outcome)
        for effect in effects
        if isinstance(message := getattr(effect, "message", None), Settle)
        for row in message.rows
    ]
    assert rows == [(1, 2, int(Outcome.ACCEPTED))], "it would count as an attempt that was not made there"
    assert handed(give(subscriber, Delivered([batch(2)], 60))) == [(2, 3)]

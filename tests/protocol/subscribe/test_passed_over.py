"""Events that a node passed over come after all if a crash undid that, and only then."""

from reknit.outcome import Outcome
from reknit.protocol.subscribe.subscriber import Delivered, Subscriber
from reknit.wire.messages import Settled
from tests.protocol.subscribe.test_subscriber import STREAM, batch, give, handed, live, reconnect


def passing(first: int = 1) -> Subscriber:
    """A durable subscriber that got 1 and 5: the node dropped the events between them."""
    subscriber = live("audit")
    if first < 5:
        give(subscriber, Delivered([batch(first)], 10))
    give(subscriber, Delivered([batch(5)], 20))
    return subscriber


def test_events_whose_end_a_crash_undid_come_behind_others() -> None:
    """Seed 423: the subscriber took them for repeated ones, and the node waited for their outcome for ever."""
    subscriber = passing()
    reconnect(subscriber)
    assert handed(give(subscriber, Delivered([batch(1, 3)], 30))) == [(2, 4)]
    assert handed(give(subscriber, Delivered([batch(1, 6)], 40))) == [(4, 5), (6, 7)]


def test_first_events_of_a_series_may_have_been_passed_over() -> None:
    subscriber = passing(first=5)
    reconnect(subscriber)
    assert handed(give(subscriber, Delivered([batch(4, 2)], 30))) == [(4, 5)]


def test_events_whose_end_is_stored_do_not_come_any_more() -> None:
    """The node stores it before the outcome of an event behind them."""
    subscriber = passing()
    subscriber.settle(STREAM, 5, 6, Outcome.ACCEPTED)
    give(subscriber, Settled(1, subscriber.flush()))
    reconnect(subscriber)
    assert handed(give(subscriber, Delivered([batch(1, 5)], 30))) == []


def test_outcome_that_is_stored_after_a_crash_says_nothing_about_events_from_before_it() -> None:
    """The node may deliver them later: it has to wait for credit."""
    subscriber = passing()
    subscriber.settle(STREAM, 5, 6, Outcome.ACCEPTED)
    number = subscriber.flush()
    reconnect(subscriber)
    give(subscriber, Settled(1, number))
    assert handed(give(subscriber, Delivered([batch(2, 3)], 30))) == [(2, 5)]


def test_events_that_are_passed_over_again_are_forgotten_with_the_next_outcome() -> None:
    subscriber = passing()
    reconnect(subscriber)
    give(subscriber, Delivered([batch(6)], 30))
    subscriber.settle(STREAM, 5, 7, Outcome.ACCEPTED)
    give(subscriber, Settled(1, subscriber.flush()))
    assert handed(give(subscriber, Delivered([batch(2, 3)], 40))) == []


def test_another_journal_delivers_everything_anew() -> None:
    subscriber = passing()
    reconnect(subscriber, epoch="another")
    assert handed(give(subscriber, Delivered([batch(2, 3)], 10))) == [(2, 5)]
    assert handed(give(subscriber, Delivered([batch(2, 3)], 10))) == []

"""Dispatching: every subscriber gets every matching event, or an outcome says why not."""

from random import Random

import pytest

from reknit.batch import Batch
from reknit.entries import Removed
from reknit.outcome import Code, FinalOutcome, Outcome, Reason
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import EventsGone, JournalTrimmed, OpenSubscription, PeerBlocked
from reknit.protocol.effects import AppendRecord, DeadLetter, DeliverRuns, Send
from reknit.protocol.machine import JOURNAL, PeerLeft
from reknit.topic import Pattern
from reknit.wire.messages import (
    Credit,
    DispositionRow,
    Held,
    Lost,
    Settle,
    Settled,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from tests.protocol.dispatch.bench import SOURCE, Bench, delivered, ranges, redelivered, said, seqs

# -- delivery


def test_live_subscriber_gets_what_matches_as_it_is_kept() -> None:
    bench = Bench()
    assert said(bench.subscribe()) == [Subscribed(1, 0, False)]
    assert delivered(bench.publish(1, 3)) == [(1, 4)]
    assert bench.publish(1, topic="car/1") == []


def test_subscriber_from_a_position_gets_the_past_first() -> None:
    bench = Bench()
    bench.publish(1)
    bench.publish(2)
    assert delivered(bench.subscribe(position=0)) == [(1, 2), (2, 3)]
    assert delivered(bench.publish(3)) == [(3, 4)]


def test_subscriber_without_credit_gets_the_rest_when_it_has_room() -> None:
    bench = Bench()
    bench.subscribe(credit=1)
    assert delivered(bench.publish(1)) == [(1, 2)]
    assert bench.publish(2) == []
    assert bench.publish(3) == []
    assert delivered(bench.give(Credit(1, 1 << 20))) == [(2, 3), (3, 4)]
    assert delivered(bench.publish(4)) == [(4, 5)]


def test_subscriber_that_does_not_settle_gets_no_more_than_the_limit() -> None:
    bench = Bench(in_flight_bytes_max=300)
    bench.subscribe("audit")
    size = Batch.build(SOURCE, "plant/a", 1, [b"x"], 0).head.length
    got = [bounds for first in range(1, 20) for bounds in delivered(bench.publish(first))]
    assert got == [(seq, seq + 1) for seq in range(1, -(-300 // size) + 1)], (
        "one batch may reach over the limit"
    )
    last = got[-1][0]
    assert delivered(bench.settle(1, 1, 2, Outcome.ACCEPTED)) == [(last + 1, last + 2)]


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.REJECTED])
def test_every_event_is_delivered_within_the_limit_in_the_end(outcome: Outcome) -> None:
    bench = Bench(in_flight_bytes_max=300)
    bench.subscribe("audit")
    got = [seq for first in range(1, 20) for seq in seqs(bench.publish(first))]
    for number in range(1, 20):
        got += seqs(bench.settle(number, number, number + 1, outcome))
    assert got == list(range(1, 20))


def test_events_that_come_back_make_room_for_others_and_are_tried_again() -> None:
    bench = Bench(in_flight_bytes_max=80)
    bench.subscribe("audit")
    assert delivered(bench.publish(1)) == [(1, 2)]
    assert bench.publish(2) == []
    assert seqs(bench.settle(1, 1, 2, Outcome.RELEASED)) == [2]
    assert seqs(bench.tick(2.0)) == [], "the second is with the subscriber"
    assert seqs(bench.settle(2, 2, 3, Outcome.ACCEPTED) + bench.tick(3.0)) == [1]


def test_blocked_peer_gets_nothing_until_it_is_unblocked() -> None:
    bench = Bench()
    bench.subscribe()
    bench.give(PeerBlocked(True))
    assert bench.publish(1) == []
    assert delivered(bench.give(PeerBlocked(False))) == [(1, 2)]


def test_slow_subscriber_costs_the_others_nothing() -> None:
    bench = Bench()
    bench.subscribe(peer="slow", credit=1)
    bench.subscribe(peer="fast")
    for seq in range(1, 4):
        effects = [effect for effect in bench.publish(seq) if isinstance(effect, DeliverRuns)]
        assert "fast" in [effect.peer for effect in effects]


# -- durable subscribers


def test_new_durable_subscription_is_confirmed_when_its_account_is_durable() -> None:
    """Otherwise a crash could forget a subscriber that has been promised everything."""
    bench = Bench()
    bench.is_slow = True
    assert bench.subscribe("audit") == []
    bench.keep()
    assert said(bench.perform()) == [Subscribed(1, 0, False)]


def test_new_durable_subscriber_does_not_get_events_staged_before_it() -> None:
    """It is not owed those events, so they could never end."""
    bench = Bench()
    bench.is_slow = True
    batch = Batch.build(SOURCE, "plant/a", 1, [b"x"], 0)
    bench.journal.stage(bytes(batch.data), [batch.head])
    bench.subscribe("audit")
    bench.keep()
    assert delivered(bench.perform()) == []
    assert bench.journal.ledger.rows()[0].published == 0


def test_connection_that_leaves_before_its_account_is_durable_is_forgotten() -> None:
    bench = Bench()
    bench.is_slow = True
    bench.subscribe("audit")
    bench.give(PeerLeft())
    bench.keep()
    assert bench.perform() == []
    assert bench.dispatch.queues == {}


def test_outcome_repeated_on_a_new_connection_is_confirmed_when_the_first_one_is_durable() -> None:
    """Otherwise a crash could forget an outcome that is never repeated."""
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.is_slow = True
    assert said(bench.settle(1, 1, 3, Outcome.ACCEPTED)) == []
    bench.give(PeerLeft())
    bench.subscribe("audit")
    assert said(bench.settle(1, 1, 3, Outcome.ACCEPTED)) == []
    bench.keep()
    assert said(bench.perform()) == [Settled(1, 1)]


def test_durable_subscriber_goes_on_after_what_has_ended() -> None:
    bench = Bench()
    bench.subscribe("audit")
    for seq in (1, 2, 3):
        bench.publish(seq)
    bench.settle(1, 2, 3, Outcome.ACCEPTED)
    bench.give(PeerLeft())
    effects = bench.subscribe("audit", peer="again")
    assert said(effects) == [Subscribed(1, 0 + bench.journal.ledger.accounts["audit"].floor, True)]
    assert delivered(effects) == [(1, 2), (3, 4)]


def test_durable_subscriber_gets_only_the_open_part_of_a_batch() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 5)
    bench.settle(1, 2, 4, Outcome.ACCEPTED)
    bench.give(PeerLeft())
    assert delivered(bench.subscribe("audit", peer="again")) == [(1, 2), (4, 6)]


def test_events_that_a_subscriber_still_holds_are_not_sent_again_and_can_be_settled() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 5)
    bench.give(PeerLeft())
    effects = bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 6)])
    assert delivered(effects) == []
    bench.settle(1, 1, 6, Outcome.ACCEPTED)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 6))}


def test_subscriber_can_not_hold_what_was_never_published() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.give(PeerLeft())
    far = 1 << 60
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, far), Held("plant/a", b"x" * 16, 1, far)])
    assert bench.dispatch.queues["p", 1].unsettled.in_flight == 2
    bench.settle(1, 1, far, Outcome.ACCEPTED)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 3))}


def test_held_events_that_ended_before_the_cursor_reached_them_are_not_sent_again() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    bench.publish(2)
    bench.give(PeerLeft())
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 2, 3)], credit=1)
    bench.settle(1, 2, 3, Outcome.ACCEPTED)
    assert delivered(bench.give(Credit(1, 1 << 20))) == []
    assert bench.dispatch.queues["p", 1].is_live


def test_second_connection_of_a_name_takes_over_and_the_first_is_told() -> None:
    bench = Bench()
    bench.subscribe("audit", peer="first")
    [told, _] = bench.subscribe("audit", peer="second")
    assert isinstance(told, Send)
    assert told.peer == "first"
    assert isinstance(told.message, Unsubscribed)
    assert told.message.code == Code.ABORTED


def test_name_can_not_change_its_pattern() -> None:
    bench = Bench()
    bench.subscribe("audit")
    [refusal] = said(bench.subscribe("audit", peer="q", pattern="car/**"))
    assert isinstance(refusal, Unsubscribed)
    assert refusal.code == Code.FAILED_PRECONDITION


def test_subscription_number_is_used_once_on_a_connection() -> None:
    bench = Bench()
    bench.subscribe()
    [refusal] = said(bench.subscribe())
    assert isinstance(refusal, Unsubscribed)
    assert refusal.code == Code.ALREADY_EXISTS


def test_forgotten_subscriber_has_no_account() -> None:
    bench = Bench()
    bench.subscribe("audit")
    assert said(bench.give(Unsubscribe(1, forget=True))) == [Unsubscribed(1, is_forgotten=True)]
    assert "audit" not in bench.journal.ledger.accounts


def test_subscriber_that_left_can_still_be_forgotten() -> None:
    bench = Bench()
    bench.subscribe("audit")
    assert said(bench.give(Unsubscribe(1))) == [Unsubscribed(1)]
    assert said(bench.give(Unsubscribe(1, forget=True))) == [Unsubscribed(1, is_forgotten=True)]
    assert bench.journal.ledger.accounts == {}


def test_connection_that_was_taken_over_can_not_forget_its_subscriber() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.give(Unsubscribe(1))
    bench.subscribe("audit", peer="other")
    assert bench.give(Unsubscribe(1, forget=True)) == []
    assert list(bench.journal.ledger.accounts) == ["audit"]


def test_forgetting_is_confirmed_when_it_is_durable() -> None:
    """Otherwise a crash could bring back an account that was reported as closed."""
    bench = Bench()
    bench.subscribe("audit")
    bench.is_slow = True
    assert bench.give(Unsubscribe(1, forget=True)) == []
    bench.keep()
    assert said(bench.perform()) == [Unsubscribed(1, is_forgotten=True)]


def test_subscriber_can_be_forgotten_before_its_account_is_durable() -> None:
    bench = Bench()
    bench.is_slow = True
    bench.subscribe("audit")
    bench.give(Unsubscribe(1, forget=True))
    bench.keep()
    assert said(bench.perform()) == [Unsubscribed(1, is_forgotten=True)]
    assert bench.journal.ledger.accounts == {}


def test_unsubscribed_durable_subscriber_keeps_its_account() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.give(Unsubscribe(1))
    assert "audit" in bench.journal.ledger.accounts
    assert bench.publish(1) == []


# -- outcomes


def test_accepted_events_end_in_the_ledger() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 5)
    assert said(bench.settle(1, 1, 4, Outcome.ACCEPTED)) == [Settled(1, 1)]
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 4))}


def test_outcome_is_confirmed_when_it_is_durable() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    bench.is_slow = True
    assert bench.settle(1, 1, 2, Outcome.ACCEPTED) == []
    bench.keep()
    assert said(bench.perform()) == [Settled(1, 1)]


def test_outcome_without_an_end_does_not_confirm_those_before_it() -> None:
    """`Settled` confirms everything up to its number: a subscriber would forget outcomes that are not durable yet."""
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.is_slow = True
    assert bench.settle(1, 1, 2, Outcome.ACCEPTED) == []
    assert bench.settle(2, 2, 3, Outcome.RELEASED) == []
    assert bench.settle(2, 2, 3, Outcome.RELEASED) == []
    bench.keep()
    assert said(bench.perform()) == [Settled(1, 2)]


def test_repeated_settle_changes_nothing_and_is_confirmed_again() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    bench.settle(1, 1, 2, Outcome.FAILED)
    assert said(bench.settle(1, 1, 2, Outcome.FAILED)) == [Settled(1, 1)]
    assert len(redelivered(bench.tick(10.0))) == 1


def test_released_event_comes_again_without_counting() -> None:
    bench = Bench(attempts_max=1)
    bench.subscribe("audit")
    bench.publish(1)
    for number in range(1, 4):
        bench.settle(number, 1, 2, Outcome.RELEASED)
        assert redelivered(bench.tick(10.0 * number)) == [(1, 2, number + 1)]


def test_failed_event_comes_again_after_its_delay() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    bench.settle(1, 1, 2, Outcome.FAILED, delay_s=3.0)
    due = bench.dispatch.next_deadline()
    assert due is not None
    assert bench.tick(2.9) == []
    assert redelivered(bench.tick(3.0)) == [(1, 2, 2)]


def test_event_that_failed_often_enough_is_a_dead_letter() -> None:
    bench = Bench(attempts_max=2)
    bench.subscribe("audit")
    bench.publish(1)
    bench.settle(1, 1, 2, Outcome.FAILED)
    bench.tick(10.0)
    letter = bench.settle(2, 1, 2, Outcome.FAILED)[0]
    assert isinstance(letter, DeadLetter)
    assert (letter.reason, letter.attempts) == (Reason.ATTEMPTS_EXHAUSTED, 2)
    assert bench.ends("audit") == {FinalOutcome.DEAD_LETTERED: ranges((1, 2))}


def test_rejected_event_is_a_dead_letter_before_its_end_is_booked() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 3)
    bench.dispatch.receive(
        Settle(1, 1, [DispositionRow("plant/a", SOURCE, 1, 3, int(Outcome.REJECTED), 3, "bad")]), "p", 0.0
    )
    kinds = [type(effect) for effect in bench.dispatch.take_effects()]
    assert kinds == [DeadLetter, AppendRecord]


def test_outcome_of_an_event_that_was_not_delivered_changes_nothing() -> None:
    bench = Bench()
    bench.subscribe("audit")
    assert said(bench.settle(1, 1, 100, Outcome.ACCEPTED)) == [Settled(1, 1)]
    assert bench.ends("audit") == {}


def test_floor_is_written_down_without_an_outcome() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, topic="car/1")
    bench.tick(100.0)
    assert bench.journal.ledger.accounts["audit"].floor > 0


# -- losses


def test_removed_events_end_as_lost_and_the_subscriber_is_told() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 5)
    bench.settle(1, 1, 3, Outcome.ACCEPTED)
    effects = bench.give(JournalTrimmed(bench.journal.end, [Removed("plant/a", SOURCE, 1, 6)]), JOURNAL)
    assert said(effects) == [Lost(1, "plant/a", SOURCE, 3, 6, "retention")]
    assert bench.ends("audit")[FinalOutcome.LOST] == ranges((3, 6))


def test_removed_events_from_before_a_subscriber_are_not_lost_to_it() -> None:
    bench = Bench()
    bench.publish(1, 5)
    bench.subscribe("audit")
    assert bench.give(JournalTrimmed(0, [Removed("plant/a", SOURCE, 1, 3)]), JOURNAL) == []
    assert bench.ends("audit") == {}


def test_removed_events_that_were_not_recorded_before_a_crash_are_recorded_after_it() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 5)
    bench.settle(1, 1, 3, Outcome.ACCEPTED)
    journal = bench.journal
    held = (lambda topic, source: 5, journal.end)
    again = Dispatcher(journal.ledger, journal.end, lambda: 1, Random(0), None, 0, *held)
    [append] = again.take_effects()
    assert isinstance(append, AppendRecord)
    journal.stage_record(append.record)
    assert bench.ends("audit")[FinalOutcome.LOST] == ranges((3, 5))


def test_subscriber_that_was_away_is_told_what_was_removed() -> None:
    bench = Bench()
    bench.subscribe()
    bench.give(PeerLeft())
    bench.publish(1, 5)
    bench.give(JournalTrimmed(bench.journal.end, [Removed("plant/a", SOURCE, 1, 6)]), JOURNAL)
    request = Subscribe(1, "plant/**", "", Start(), 1 << 20)
    effects = bench.give(OpenSubscription(request, Pattern("plant/**"), 0))
    assert said(effects) == [Subscribed(1, 0, False), Lost(1, "plant/a", SOURCE, 1, 6, "retention")]


def test_event_that_is_gone_before_its_next_attempt_is_lost() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.settle(1, 1, 2, Outcome.RELEASED)
    effects = bench.give(EventsGone(("p", 1), "plant/a", SOURCE, 1, 2), JOURNAL)
    assert said(effects) == [Lost(1, "plant/a", SOURCE, 1, 2, "retention")]
    assert bench.ends("audit") == {FinalOutcome.LOST: ranges((1, 2))}


def test_ephemeral_subscriber_is_told_of_a_gone_event_too() -> None:
    bench = Bench()
    bench.subscribe()
    bench.publish(1)
    bench.settle(1, 1, 2, Outcome.RELEASED)
    effects = bench.give(EventsGone(("p", 1), "plant/a", SOURCE, 1, 2), JOURNAL)
    assert said(effects) == [Lost(1, "plant/a", SOURCE, 1, 2, "retention")]


def test_ledger_knows_all_events_in_flight() -> None:
    bench = Bench()
    bench.subscribe("audit", credit=1)
    for seq in range(1, 5):
        bench.publish(seq)
    bench.settle(1, 1, 2, Outcome.ACCEPTED)
    [row] = bench.journal.ledger.rows(bench.dispatch.in_hand())
    assert row.balanced
    assert (row.accepted, row.in_flight) == (1, 3)

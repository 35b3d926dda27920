"""Attempts: counted by event and durable; when the next one is due, and when there is no further one."""

from __future__ import annotations

import pytest

from reknit.attempts import AttemptCount
from reknit.backoff import Backoff
from reknit.config import TopicSettings
from reknit.outcome import Code, FinalOutcome, Outcome, Reason
from reknit.protocol.dispatch.retry import Retry
from reknit.protocol.effects import AppendRecord, DeadLetter
from reknit.protocol.machine import PeerLeft
from reknit.records import Attempts, Outcomes
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow, Held, Settle, Settled
from tests.protocol.dispatch.bench import SOURCE, STREAM, Bench, delivered, letters, ranges, redelivered, said


def tally(bench: Bench, seq: int, name: str = "audit") -> AttemptCount:
    return bench.journal.ledger.accounts[name].tallies.get(STREAM, {}).get(seq, AttemptCount())


def test_acquired_and_failed_are_counted_apart() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    bench.say(Outcome.RELEASED, 1)
    bench.tick(10.0)
    bench.say(Outcome.FAILED, 1, now=10.0)
    assert (tally(bench, 1).acquired, tally(bench, 1).failed) == (2, 1)
    assert [one.outcome for one in tally(bench, 1).tries] == [Outcome.RELEASED, Outcome.FAILED]


def test_counters_go_on_after_a_restart() -> None:
    """With a lost counter, an event would never become a dead letter."""
    bench = Bench(attempts_max=3)
    bench.subscribe("audit")
    bench.publish(1)
    for number in (1, 2):
        bench.say(Outcome.FAILED, 1, now=10.0 * number)
        bench.tick(10.0 * number + 5)
    again = bench.restart(attempts_max=3)
    again.subscribe("audit")
    assert redelivered(again.tick(100.0)) == [(1, 2, 3)]
    [letter] = [one for one in again.say(Outcome.FAILED, 1, now=100.0) if isinstance(one, DeadLetter)]
    assert (letter.reason, letter.attempts, len(letter.tries)) == (Reason.ATTEMPTS_EXHAUSTED, 3, 3)


def test_outcome_that_is_repeated_on_a_new_connection_is_counted_once() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    row = DispositionRow("plant/a", SOURCE, 1, 2, int(Outcome.FAILED), attempt=1)
    bench.give(Settle(1, 1, [row]))
    bench.give(PeerLeft())
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 2)])
    assert said(bench.give(Settle(1, 1, [row]))) == [Settled(1, 1)]
    assert tally(bench, 1).failed == 1
    assert redelivered(bench.tick(10.0)) == [(1, 2, 2)]


def test_outcomes_of_two_attempts_that_are_repeated_on_a_new_connection_both_count() -> None:
    """The node knows of the first attempt only: its repetition gives the event back, and the second counts too."""
    bench = Bench(attempts_max=3)
    bench.subscribe("audit")
    bench.publish(1)
    rows = [DispositionRow("plant/a", SOURCE, 1, 2, int(Outcome.FAILED), attempt=number) for number in (1, 2)]
    bench.give(Settle(1, 1, rows[:1]))
    assert redelivered(bench.tick(10.0)) == [(1, 2, 2)]
    bench.give(PeerLeft())
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 2)])
    for number, row in enumerate(rows, 1):
        bench.give(Settle(1, number, [row]))
    assert tally(bench, 1).failed == 2
    assert redelivered(bench.tick(20.0)) == [(1, 2, 3)]


def test_two_attempts_that_a_node_learns_of_at_the_same_time_are_two_after_a_restart() -> None:
    """The journal took the second one for a repetition of the first, and the dead letter lacked it."""
    bench = Bench(attempts_max=3)
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 2)])
    bench.publish(1)
    rows = [DispositionRow("plant/a", SOURCE, 1, 2, int(Outcome.FAILED), attempt=number) for number in (1, 2)]
    for number, row in enumerate(rows, 1):
        bench.give(Settle(1, number, [row]))
    again = bench.restart(attempts_max=3)
    assert len(tally(again, 1).tries) == 2


def test_repeated_outcome_of_the_last_attempt_ends_an_event_that_waits() -> None:
    bench = Bench(attempts_max=2)
    bench.subscribe("audit")
    bench.publish(1)
    rows = [DispositionRow("plant/a", SOURCE, 1, 2, int(Outcome.FAILED), attempt=number) for number in (1, 2)]
    bench.give(Settle(1, 1, rows[:1]))
    bench.tick(10.0)
    bench.give(PeerLeft())
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 2)])
    bench.give(Settle(1, 1, rows[:1]))
    [letter] = [one for one in bench.give(Settle(1, 2, rows[1:])) if isinstance(one, DeadLetter)]
    assert (letter.reason, letter.attempts) == (Reason.ATTEMPTS_EXHAUSTED, 2)
    assert redelivered(bench.tick(20.0)) == []


def test_outcome_of_an_attempt_before_the_last_changes_nothing() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    for number in (1, 2):
        bench.say(Outcome.FAILED, 1, now=10.0 * number)
        bench.tick(10.0 * number + 5)
    bench.say(Outcome.FAILED, 1, now=30.0, attempt=1)
    assert tally(bench, 1).failed == 2
    assert bench.tick(40.0) == []


def test_attempts_are_durable_before_their_outcomes_are_confirmed() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    bench.is_slow = True
    assert bench.say(Outcome.FAILED, 1) == []
    bench.keep()
    assert said(bench.perform()) == [Settled(1, 1)]


def test_failed_batch_is_one_row_and_is_redelivered_as_a_batch() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 1000)
    bench.dispatch.receive(
        Settle(1, 1, [DispositionRow("plant/a", SOURCE, 1, 1001, int(Outcome.FAILED))]), "p", 0.0
    )
    [record] = [one.record for one in bench.dispatch.take_effects() if isinstance(one, AppendRecord)]
    assert isinstance(record, Attempts)
    assert len(record.rows) == 1
    assert redelivered(bench.tick(10.0)) == [(1, 1001, 2)]


def test_events_of_a_batch_are_settled_one_by_one() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 4)
    rows = [
        DispositionRow("plant/a", SOURCE, 1, 2, int(Outcome.ACCEPTED)),
        DispositionRow("plant/a", SOURCE, 2, 3, int(Outcome.FAILED)),
        DispositionRow("plant/a", SOURCE, 3, 4, int(Outcome.REJECTED), int(Code.DATA_LOSS), "torn"),
        DispositionRow("plant/a", SOURCE, 4, 5, int(Outcome.ACCEPTED)),
    ]
    effects = bench.give(Settle(1, 1, rows))
    assert letters(effects) == [(3, 4, "rejected")]
    assert bench.ends("audit") == {
        FinalOutcome.ACCEPTED: ranges((1, 2), (4, 5)),
        FinalOutcome.DEAD_LETTERED: ranges((3, 4)),
    }
    assert redelivered(bench.tick(10.0)) == [(2, 3, 2)]


def test_later_accept_does_not_skip_an_event_before_it() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 5)
    bench.say(Outcome.ACCEPTED, 3, 6)
    bench.give(PeerLeft())
    assert delivered(bench.subscribe("audit")) == [(1, 3)]


def test_dead_letter_lists_its_own_attempts_only() -> None:
    bench = Bench(attempts_max=2)
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.say(Outcome.FAILED, 1, code=Code.UNAVAILABLE)
    bench.say(Outcome.FAILED, 2, code=Code.ABORTED)
    bench.tick(10.0)
    effects = bench.say(Outcome.FAILED, 1, 3, now=10.0)
    found = [(one.start, one.stop, one.tries[0].code) for one in effects if isinstance(one, DeadLetter)]
    assert found == [(1, 2, Code.UNAVAILABLE), (2, 3, Code.ABORTED)]


def test_code_that_is_never_retried_is_a_dead_letter_at_once() -> None:
    bench = Bench(retry=Retry(1.0, 1.0, never=frozenset({int(Code.INVALID_ARGUMENT)})))
    bench.subscribe("audit")
    bench.publish(1)
    [letter] = [
        one
        for one in bench.say(Outcome.FAILED, 1, code=int(Code.INVALID_ARGUMENT), text="no json")
        if isinstance(one, DeadLetter)
    ]
    assert (letter.code, letter.reason, letter.text) == (Code.INVALID_ARGUMENT, "rejected", "no json")
    assert bench.tick(100.0) == []


def test_code_with_a_back_off_of_its_own_waits_as_long() -> None:
    bench = Bench(retry=Retry(1.0, 1.0, codes={int(Code.UNAVAILABLE): Backoff(1000.0, 1000.0)}))
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.say(Outcome.FAILED, 1)
    bench.say(Outcome.FAILED, 2, code=int(Code.UNAVAILABLE))
    assert redelivered(bench.tick(1.0)) == [(1, 2, 2)]
    assert redelivered(bench.tick(1000.0)) == [(2, 3, 2)]


def test_attempts_max_of_a_topic_overrides_that_of_the_node() -> None:
    bench = Bench(topics=[TopicSettings(pattern=Pattern("plant/**"), attempts_max=1)])
    bench.subscribe("audit")
    bench.publish(1)
    assert letters(bench.say(Outcome.FAILED, 1)) == [(1, 2, "attempts_exhausted")]


def test_without_a_limit_an_event_is_tried_for_ever() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    for number in range(1, 50):
        assert letters(bench.say(Outcome.FAILED, 1, now=10.0 * number)) == []
        assert redelivered(bench.tick(10.0 * number + 5)) == [(1, 2, number + 1)]


def test_subscriber_that_comes_back_does_not_shorten_the_back_off() -> None:
    """Otherwise a simple failure could use up all attempts in milliseconds."""
    bench = Bench(retry=Retry(1000.0, 1000.0))
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.say(Outcome.FAILED, 1)
    bench.give(PeerLeft())
    effects = bench.subscribe("audit")
    assert redelivered(effects) == [(2, 3, 1)]
    assert redelivered(bench.tick(1000.0)) == [(1, 2, 2)]


def test_counts_are_dropped_with_their_events() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 3)
    bench.say(Outcome.FAILED, 1, 4)
    bench.tick(10.0)
    bench.say(Outcome.ACCEPTED, 1, 4)
    assert bench.journal.ledger.accounts["audit"].tallies == {}
    assert len(bench.dispatch.queues["p", 1].attempts) == 0


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.REJECTED])
def test_attempts_are_recorded_before_the_outcome(outcome: Outcome) -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    rows = [
        DispositionRow("plant/a", SOURCE, 1, 2, int(outcome)),
        DispositionRow("plant/a", SOURCE, 2, 3, int(Outcome.FAILED)),
    ]
    bench.dispatch.receive(Settle(1, 1, rows), "p", 0.0)
    records = [one.record for one in bench.dispatch.take_effects() if isinstance(one, AppendRecord)]
    assert [type(record) for record in records] == [Attempts, Outcomes]

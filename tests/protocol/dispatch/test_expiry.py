"""Time to live: an event that expires while it waits becomes a dead letter on time, connected or not."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.config import TopicSettings
from reknit.ledger import ANYCAST
from reknit.outcome import Code, FinalOutcome, Outcome
from reknit.protocol.effects import Append, DeadLetter, Mark, Send
from reknit.protocol.machine import JOURNAL, MadeDurable, PeerLeft
from reknit.protocol.publish.intake import Intake
from reknit.topic import Pattern
from reknit.wire.codec import Frames
from reknit.wire.messages import Credit, Refuse
from tests.protocol.dispatch.bench import SOURCE, Bench, letters, ranges, redelivered, seqs


def test_event_that_waits_past_its_ttl_is_a_dead_letter() -> None:
    bench = Bench()
    bench.subscribe("audit", credit=1)
    bench.publish(1)
    assert seqs(bench.publish(2, ttl_ms=2000)) == []
    assert letters(bench.tick(1.9)) == []
    [letter] = [one for one in bench.tick(2.1) if isinstance(one, DeadLetter)]
    assert (letter.start, letter.reason, letter.code) == (2, "expired", Code.DEADLINE_EXCEEDED)
    assert bench.ends("audit") == {FinalOutcome.DEAD_LETTERED: ranges((2, 3))}
    assert seqs(bench.give(Credit(1, 1 << 20), now=3.0)) == []


def test_event_of_a_subscriber_that_is_away_expires_too() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.give(PeerLeft())
    bench.publish(1, 3, ttl_ms=2000)
    assert letters(bench.tick(2.1)) == [(1, 4, "expired")]
    assert seqs(bench.subscribe("audit")) == []


def test_event_that_was_accepted_does_not_expire_while_its_outcome_waits_for_the_journal() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2, ttl_ms=2000)
    bench.is_full = True
    bench.say(Outcome.ACCEPTED, 1)
    bench.give(PeerLeft())
    assert letters(bench.tick(2.1)) == [(2, 3, "expired")]


def test_event_expires_after_a_restart() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, ttl_ms=2000)
    again = bench.restart()
    found: list[tuple[int, int, str]] = []
    for now in (0.1, 0.2, 2.2):
        found += letters(again.tick(now))
    assert found == [(1, 2, "expired")]


def test_event_that_is_being_processed_may_be_finished() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, ttl_ms=2000)
    assert letters(bench.tick(5.0)) == []
    bench.say(Outcome.ACCEPTED, 1, now=5.0)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 2))}


def test_event_that_fails_past_its_ttl_is_not_tried_again() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, ttl_ms=2000)
    bench.tick(5.0)
    assert letters(bench.say(Outcome.FAILED, 1, now=5.0)) == [(1, 2, "expired")]


def test_event_that_backs_off_expires_at_its_time() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, ttl_ms=2000)
    bench.say(Outcome.FAILED, 1, delay_s=1000.0)
    assert letters(bench.tick(2.1)) == [(1, 2, "expired")]
    assert redelivered(bench.tick(2000.0)) == []


def test_clock_of_a_publisher_that_is_ahead_gives_no_longer_life() -> None:
    bench = Bench()
    bench.subscribe("audit", credit=1)
    bench.publish(1)
    batch = Batch.build(SOURCE, "plant/a", 2, [b"x"], 100_000_000, ttl_ms=2000)
    bench.journal.stage(bytes(batch.data), [batch.head])
    bench.keep(1.0)
    assert letters(bench.tick(3.1)) == [(2, 3, "expired")]


def test_each_event_of_a_batch_has_its_own_ttl() -> None:
    bench = Bench()
    bench.subscribe("audit", credit=1)
    bench.publish(1)
    bench.publish(2, 3, ttl_ms=9000, columns={"ttl": [1000, 0, 9000]})
    assert letters(bench.tick(2.0)) == [(2, 3, "expired")]
    assert letters(bench.tick(10.0)) == [(4, 5, "expired")]
    assert seqs(bench.give(Credit(1, 1 << 20), now=11.0)) == [3]


def test_event_without_ttl_never_expires() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.give(PeerLeft())
    bench.publish(1)
    assert letters(bench.tick(1e9)) == []


def test_topic_gives_a_ttl_to_events_without_one() -> None:
    bench = Bench(topics=[TopicSettings(pattern=Pattern("plant/**"), ttl_ms=2000)])
    bench.subscribe("audit")
    bench.give(PeerLeft())
    bench.publish(1)
    assert letters(bench.tick(2.1)) == [(1, 2, "expired")]


def test_event_from_before_a_subscriber_does_not_expire_for_it() -> None:
    bench = Bench()
    bench.publish(1, ttl_ms=2000)
    bench.subscribe("audit")
    assert letters(bench.tick(5.0)) == []


def test_event_from_too_far_in_the_future_is_refused() -> None:
    intake = Intake({})
    intake.set_clock(0, 60.0)
    for first, time_us in ((1, 59_000_000), (2, 61_000_000)):
        batch = Batch.build(SOURCE, "plant/a", first, [b"x"], time_us)
        intake.receive(Frames(bytes(batch.data), [batch.head]), "p", 0.0)
    append, _, mark = intake.take_effects()
    assert isinstance(append, Append)
    assert isinstance(mark, Mark)
    intake.receive(MadeDurable(mark.number), JOURNAL, 0.0)
    refusal = intake.take_effects()[-2]
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert (refusal.message.start, refusal.message.code) == (2, Code.INVALID_ARGUMENT)


def test_events_of_anycast_accounts_are_left_alone() -> None:
    assert ANYCAST == "anycast/"
    bench = Bench(queue_events_max=1)
    bench.journal.ledger.open(f"{ANYCAST}plant/**", Pattern("plant/**"), {}, 0)
    bench.publish(1, 5, ttl_ms=2000)
    assert letters(bench.tick(5.0)) == []
    assert bench.dispatch.overflow.loads("plant/a") == []


def test_a_dead_letter_of_an_event_before_a_resumed_cursor_has_its_attempts() -> None:
    """Core seed 300482: they were forgotten in the letter, and kept in memory for ever."""
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, ttl_ms=2000)
    bench.say(Outcome.RELEASED, 1)
    bench.give(PeerLeft())
    bench.subscribe("audit", credit=0)
    [letter] = [one for one in bench.tick(2.1) if isinstance(one, DeadLetter)]
    assert (letter.start, letter.attempts, len(letter.tries)) == (1, 1, 1)
    [queue] = bench.dispatch.queues.values()
    assert len(queue.attempts) == 0

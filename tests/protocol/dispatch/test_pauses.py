"""Pause and resume by topic: durable, and without an effect on attempts, ttl or delivered events."""

from __future__ import annotations

from reknit.entries import Removed
from reknit.outcome import Code, FinalOutcome, Outcome
from reknit.protocol.dispatch.inputs import JournalTrimmed, SetPaused
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import DeliverRuns
from reknit.protocol.machine import JOURNAL, PeerLeft
from reknit.wire.messages import Answer, Credit, Held, Lost
from tests.protocol.dispatch.bench import SOURCE, Bench, delivered, letters, ranges, redelivered, said, seqs

OTHER = b"o" * 16


def pause(bench: Bench, pattern: str = "plant/a", now: float = 0.0) -> list[Effect]:
    return bench.give(SetPaused(7, pattern, True), "admin", now)


def resume(bench: Bench, pattern: str = "plant/a", now: float = 0.0) -> list[Effect]:
    return bench.give(SetPaused(8, pattern, False), "admin", now)


def test_paused_topic_is_not_delivered_and_others_are() -> None:
    bench = Bench()
    bench.subscribe("audit")
    pause(bench)
    assert seqs(bench.publish(1, 3)) == []
    assert delivered(bench.publish(1, topic="plant/b")) == [(1, 2)]
    assert seqs(resume(bench)) == [1, 2, 3]


def test_pause_is_confirmed_when_it_is_durable() -> None:
    bench = Bench()
    bench.is_slow = True
    assert pause(bench) == []
    bench.keep()
    assert said(bench.perform()) == [Answer(7, Code.OK, "", {"paused": ["plant/a"], "changed": True})]
    assert bench.journal.paused == {"plant/a"}


def test_pausing_twice_is_pausing_once() -> None:
    bench = Bench()
    pause(bench)
    assert said(pause(bench)) == [Answer(7, Code.OK, "", {"paused": ["plant/a"], "changed": False})]


def test_pause_survives_a_restart() -> None:
    bench = Bench()
    bench.subscribe("audit")
    pause(bench)
    bench.publish(1, 3)
    again = bench.restart()
    assert seqs(again.subscribe("audit")) == []
    assert seqs(resume(again)) == [1, 2, 3]


def test_pause_counts_no_attempts() -> None:
    bench = Bench(attempts_max=1)
    bench.subscribe("audit")
    pause(bench)
    bench.publish(1)
    bench.tick(1000.0)
    resume(bench, now=1000.0)
    assert bench.journal.ledger.accounts["audit"].tallies == {}


def test_ttl_goes_on_while_paused() -> None:
    bench = Bench()
    bench.subscribe("audit")
    pause(bench)
    bench.publish(1, ttl_ms=2000)
    assert letters(bench.tick(2.1)) == [(1, 2, "expired")]
    assert seqs(resume(bench, now=3.0)) == []


def test_what_is_in_hand_can_be_settled_while_paused() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    pause(bench)
    bench.say(Outcome.ACCEPTED, 1)
    bench.say(Outcome.FAILED, 2)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 2))}
    assert redelivered(bench.tick(10.0)) == []
    assert redelivered(resume(bench, now=11.0)) == [(2, 3, 2)]


def test_order_of_a_source_holds_across_a_pause() -> None:
    bench = Bench()
    bench.subscribe("audit", credit=400)
    pause(bench)
    for seq in range(1, 30):
        bench.publish(seq)
    got = seqs(resume(bench))
    assert 0 < len(got) < 29
    got += seqs(bench.publish(30))
    got += seqs(bench.give(Credit(1, 1 << 20)))
    assert got == list(range(1, 31))


def test_resumed_topic_is_delivered_within_credit() -> None:
    bench = Bench()
    bench.subscribe("audit", credit=300)
    pause(bench)
    for seq in range(1, 30):
        bench.publish(seq)
    got = seqs(resume(bench))
    assert len(got) < 10


def test_ephemeral_subscriber_is_paused_too() -> None:
    bench = Bench()
    bench.subscribe()
    pause(bench, "plant/**")
    assert seqs(bench.publish(1)) == []
    assert seqs(resume(bench, "plant/**")) == [1]


def test_ledger_knows_what_waits_for_a_paused_topic() -> None:
    bench = Bench()
    bench.subscribe("audit")
    pause(bench)
    bench.publish(1, 5)
    [row] = bench.journal.ledger.rows(bench.dispatch.in_hand())
    assert row.balanced
    assert row.in_flight == 5


def test_paused_events_keep_the_floor() -> None:
    bench = Bench()
    bench.subscribe("audit")
    pause(bench)
    bench.publish(1, 5)
    [entry] = bench.journal.find("plant/a", SOURCE, 1, 2)
    bench.publish(1, topic="plant/b")
    bench.tick(100.0)
    assert bench.journal.ledger.accounts["audit"].floor == entry.position


def test_no_position_beyond_events_set_aside_is_sent() -> None:
    bench = Bench()
    bench.subscribe()
    pause(bench)
    bench.publish(1, 3)
    assert places(bench.publish(1, topic="plant/b", source=OTHER)) == [-1]
    resume(bench)
    assert places(bench.publish(2, topic="plant/b", source=OTHER)) == [bench.journal.end]


def test_returning_subscriber_gets_events_set_aside_and_nothing_twice() -> None:
    bench = Bench()
    bench.subscribe()
    pause(bench)
    bench.publish(1, 3)
    bench.publish(1, topic="plant/b", source=OTHER)
    bench.give(PeerLeft(), "p")
    resume(bench)
    assert delivered(bench.subscribe(position=0, seen={OTHER: 1})) == [(1, 4)]
    assert delivered(bench.publish(2, topic="plant/b", source=OTHER)) == [(2, 3)]


def test_held_events_stay_held_after_a_pause() -> None:
    bench = Bench()
    bench.subscribe()
    bench.publish(1, 3)
    bench.give(PeerLeft(), "p")
    bench.subscribe(position=0, seen={SOURCE: 3}, held=[Held("plant/a", SOURCE, 2, 3)])
    bench.say(Outcome.RELEASED, 2)
    assert redelivered(bench.tick(10.0)) == [(2, 3, 2)]


def places(effects: list[Effect]) -> list[int]:
    """The positions sent with deliveries."""
    return [effect.position for effect in effects if isinstance(effect, DeliverRuns)]


def test_removal_of_paused_events_is_reported_at_once() -> None:
    bench = Bench()
    bench.subscribe()
    pause(bench)
    bench.publish(1, 3)
    bench.publish(4, 2)
    effects = bench.give(JournalTrimmed(0, [Removed("plant/a", SOURCE, 1, 4)]), JOURNAL)
    assert said(effects) == [Lost(1, "plant/a", SOURCE, 1, 4, "retention")]
    assert seqs(resume(bench)) == [4, 5]

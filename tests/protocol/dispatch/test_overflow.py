"""Limits of a subscriber's queue: publishers wait, or events that are refused or dropped become dead letters."""

from __future__ import annotations

from typing import Any

from reknit.batch import Batch
from reknit.config import TopicSettings
from reknit.outcome import Code, FinalOutcome, Outcome
from reknit.protocol.effects import Append, DeadLetter, Send, Withhold
from reknit.protocol.machine import PeerLeft
from reknit.protocol.publish.inputs import QueuesFull
from reknit.protocol.publish.intake import Intake
from reknit.topic import Pattern
from reknit.wire.codec import Frames
from reknit.wire.messages import Go, Hold, Unsubscribe
from tests.protocol.dispatch.bench import SOURCE, Bench, letters, ranges, seqs


def limited(overflow: Any, **fields: Any) -> Bench:
    """A disconnected subscriber for which 10 events may wait, one of them reserved for CS5 and CS6."""
    fields = {"queue_events_max": 10, **fields}
    bench = Bench(topics=[TopicSettings(pattern=Pattern("plant/**"), overflow=overflow)], **fields)
    bench.subscribe("audit")
    bench.give(PeerLeft())
    return bench


def withheld(effects: list[Any]) -> list[bool]:
    return [effect.is_on for effect in effects if isinstance(effect, Withhold)]


def test_publishers_wait_while_a_queue_is_full() -> None:
    bench = limited("withhold")
    assert withheld(bench.publish(1, 8)) == []
    assert withheld(bench.publish(9)) == [True]
    assert "audit" in bench.dispatch.overflow.refuses("plant/a", 1)
    assert bench.dispatch.overflow.refuses("car/1", 1) == ""
    bench.subscribe("audit")
    assert withheld(bench.say(Outcome.ACCEPTED, 1, 5)) == [False]


def test_publisher_does_not_wait_for_a_bridge() -> None:
    """In a ring of bridges every node would wait for the next one."""
    bench = Bench(topics=[TopicSettings(pattern=Pattern("plant/**"))], queue_events_max=10)
    bench.subscribe("route/a/tcp://b/plant/**")
    bench.give(PeerLeft())
    assert withheld(bench.publish(1, 100)) == []
    assert bench.dispatch.overflow.refuses("plant/a", 1) == ""


def test_nothing_is_dead_lettered_while_publishers_wait() -> None:
    bench = limited("withhold")
    assert letters(bench.publish(1, 100)) == []


def test_full_queue_is_full_after_a_restart() -> None:
    bench = limited("withhold")
    bench.publish(1, 20)
    again = bench.restart(topics=[TopicSettings(pattern=Pattern("plant/**"))], queue_events_max=10)
    assert withheld(again.perform()) == [True]


def test_queue_of_a_forgotten_subscriber_withholds_no_publisher() -> None:
    bench = limited("withhold")
    bench.publish(1, 20)
    bench.subscribe("audit")
    assert withheld(bench.give(Unsubscribe(1, forget=True))) == [False]


def test_intake_asks_publishers_on_full_topics_to_wait_and_then_to_continue() -> None:
    intake = Intake({})
    intake.receive(QueuesFull(lambda topic, priority: "full" if topic == "plant/a" else ""), "j", 0.0)
    for peer, topic, source in (("p", "plant/a", SOURCE), ("q", "car/1", b"q" * 16)):
        batch = Batch.build(source, topic, 1, [b"x"], 0)
        intake.receive(Frames(bytes(batch.data), [batch.head]), peer, 0.0)
    hold, append = intake.take_effects()
    assert hold == Send("p", Hold(Code.RESOURCE_EXHAUSTED, "full", [SOURCE]))
    assert isinstance(append, Append)
    intake.receive(QueuesFull(None), "j", 0.0)
    assert intake.take_effects() == [Send("p", Go()), Send("q", Go())]


def test_only_sources_on_full_topics_wait_and_others_of_the_same_connection_go_on() -> None:
    intake, other = Intake({}), b"q" * 16
    intake.receive(
        QueuesFull(lambda topic, priority: "full" if (topic, priority) == ("plant/a", 1) else ""), "j", 0
    )
    made = [
        Batch.build(SOURCE, "plant/a", 1, [b"x"], 0),
        Batch.build(other, "car/1", 1, [b"y"], 0),
        Batch.build(SOURCE, "plant/a", 2, [b"behind it"], 0, priority=6),
        Batch.build(other, "car/1", 2, [b"z"], 0),
    ]
    intake.receive(Frames(b"".join(bytes(one.data) for one in made), [one.head for one in made]), "p", 0.0)
    hold, *appends = intake.take_effects()
    assert hold == Send("p", Hold(Code.RESOURCE_EXHAUSTED, "full", [SOURCE]))
    taken = [Batch.parse(one.data) for one in appends if isinstance(one, Append)]
    assert [(one.source, one.first, one.payloads()) for one in taken] == [
        (other, 1, [b"y"]),
        (other, 2, [b"z"]),
    ]


def test_reserve_is_for_urgent_events() -> None:
    bench = limited("withhold")
    bench.publish(1, 9)
    assert bench.dispatch.overflow.refuses("plant/a", 4)
    assert bench.dispatch.overflow.refuses("plant/a", 5) == ""
    bench.publish(10, priority=6)
    assert bench.dispatch.overflow.refuses("plant/a", 6)


def test_newest_is_refused_into_the_dead_letters() -> None:
    bench = limited("refuse_newest")
    assert letters(bench.publish(1, 9)) == []
    [letter] = [one for one in bench.publish(10, 3) if isinstance(one, DeadLetter)]
    assert (letter.start, letter.stop, letter.reason) == (10, 13, "egress_full")
    assert letter.code == Code.RESOURCE_EXHAUSTED
    assert seqs(bench.subscribe("audit")) == list(range(1, 10))


def test_batch_that_fits_in_part_is_refused_in_part() -> None:
    bench = limited("refuse_newest")
    assert letters(bench.publish(1, 12)) == [(10, 13, "egress_full")]


def test_urgent_event_uses_the_reserve() -> None:
    bench = limited("refuse_newest")
    bench.publish(1, 9)
    assert letters(bench.publish(10, priority=5)) == []
    assert letters(bench.publish(11, priority=5)) == [(11, 12, "egress_full")]


def test_oldest_is_dropped_into_the_dead_letters() -> None:
    bench = limited("drop_oldest")
    bench.publish(1, 9)
    assert letters(bench.publish(10, 3)) == [(1, 4, "egress_full")]
    assert seqs(bench.subscribe("audit")) == list(range(4, 13))
    assert bench.ends("audit") == {FinalOutcome.DEAD_LETTERED: ranges((1, 4))}


def test_oldest_from_before_a_restart_is_dropped_first() -> None:
    bench = limited("drop_oldest")
    bench.publish(1, 9)
    rule = TopicSettings(pattern=Pattern("plant/**"), overflow="drop_oldest")
    again = bench.restart(topics=[rule], queue_events_max=10)
    again.tick(0.1)
    assert letters(again.publish(10, 2, now=0.2)) == [(1, 3, "egress_full")]


def test_event_that_is_being_processed_is_not_dropped() -> None:
    bench = Bench(
        topics=[TopicSettings(pattern=Pattern("plant/**"), overflow="drop_oldest")], queue_events_max=10
    )
    bench.subscribe("audit", credit=1)
    bench.publish(1, 5)
    bench.publish(6, 4)
    assert letters(bench.publish(10, 2)) == [(6, 8, "egress_full")]


def test_bytes_are_limited_too() -> None:
    size = len(Batch.build(SOURCE, "plant/a", 1, [b"x"], 0).data)
    bench = limited("refuse_newest", queue_events_max=0, queue_bytes_max=10 * size)
    for seq in range(1, 10):
        assert letters(bench.publish(seq)) == []
    assert letters(bench.publish(10)) == [(10, 11, "egress_full")]


def test_every_ended_event_makes_room() -> None:
    bench = limited("refuse_newest")
    bench.publish(1, 9)
    bench.subscribe("audit")
    bench.say(Outcome.ACCEPTED, 1, 6)
    assert letters(bench.publish(10, 5)) == []


def test_without_a_limit_nothing_is_counted() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 1000)
    assert bench.dispatch.overflow.loads("plant/a") == []


def test_events_that_arrive_expired_leave_nothing_waiting() -> None:
    bench = limited("withhold", queue_events_max=5)
    bench.subscribe("audit")
    late = Batch.build(SOURCE, "plant/a", 1, [b"x"] * 20, 1, ttl_ms=1)
    bench.journal.stage(bytes(late.data), [late.head])
    bench.keep(40.0)
    bench.perform(40.0)
    bench.tick(41.0)
    assert bench.journal.ledger.accounts["audit"].ended(("plant/a", SOURCE)) == ranges((1, 21))
    assert bench.dispatch.overflow.refuses("plant/a", 1) == ""


def test_the_newest_of_several_batches_are_refused() -> None:
    bench = limited("refuse_newest", queue_events_max=10)
    for first in (1, 9):
        batch = Batch.build(SOURCE, "plant/a", first, [b"x"] * 8, 0)
        bench.journal.stage(bytes(batch.data), [batch.head])
    bench.keep(0.0)
    found = [row[:2] for row in letters(bench.perform(0.0))]
    assert sorted(seq for start, stop in found for seq in range(start, stop)) == list(range(10, 17))

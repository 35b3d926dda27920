"""Order: a key waits while its head is retried, other keys flow, and any outcome frees it."""

from __future__ import annotations

from typing import Any

from reknit.config import TopicSettings
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.effects import Redeliver
from reknit.protocol.machine import PeerLeft
from reknit.topic import Pattern
from reknit.wire.messages import Credit, Held
from tests.protocol.dispatch.bench import SOURCE, Bench, letters, ranges, redelivered, seqs

OTHER = b"t" * 16
BY_SOURCE = TopicSettings(pattern=Pattern("plant/**"), order="source", attempts_max=2)
BY_KEY = TopicSettings(pattern=Pattern("plant/**"), order="key", attempts_max=2)


def ordered(rule: TopicSettings = BY_SOURCE, **fields: Any) -> Bench:
    bench = Bench(topics=[rule], **fields)
    bench.subscribe("audit")
    return bench


def keyed(bench: Bench, first: int, keys: str) -> list[int]:
    return seqs(bench.publish(first, len(keys), columns={"key": list(keys)}))


def test_second_batch_of_a_source_waits_for_the_first() -> None:
    bench = ordered()
    assert seqs(bench.publish(1, 3)) == [1, 2, 3]
    assert seqs(bench.publish(4, 2)) == []
    assert seqs(bench.say(Outcome.ACCEPTED, 1, 3)) == []
    assert seqs(bench.say(Outcome.ACCEPTED, 3)) == [4, 5]


def test_source_waits_while_its_head_backs_off_and_others_flow() -> None:
    bench = ordered()
    bench.publish(1)
    bench.say(Outcome.FAILED, 1, delay_s=5.0)
    assert seqs(bench.publish(2)) == []
    assert seqs(bench.publish(1, source=OTHER)) == [1]
    assert redelivered(bench.tick(5.0)) == [(1, 2, 2)]
    assert seqs(bench.say(Outcome.ACCEPTED, 1, now=5.0)) == [2]


def test_rest_of_a_unit_is_redelivered_after_its_head() -> None:
    bench = ordered()
    bench.publish(1, 4)
    bench.say(Outcome.ACCEPTED, 1)
    bench.say(Outcome.FAILED, 2, delay_s=5.0)
    bench.say(Outcome.RELEASED, 3, 5)
    assert seqs(bench.tick(4.9)) == []
    assert redelivered(bench.tick(5.0)) == [(2, 3, 2)]
    assert redelivered(bench.say(Outcome.ACCEPTED, 2, now=5.0)) == [(3, 5, 2)]


def test_dead_letter_frees_its_key() -> None:
    bench = ordered()
    bench.publish(1)
    bench.publish(2)
    bench.say(Outcome.FAILED, 1)
    bench.tick(10.0)
    effects = bench.say(Outcome.FAILED, 1, now=10.0)
    assert letters(effects) == [(1, 2, "attempts_exhausted")]
    assert seqs(effects) == [2]


def test_rejected_head_frees_its_key() -> None:
    bench = ordered()
    bench.publish(1)
    bench.publish(2)
    assert seqs(bench.say(Outcome.REJECTED, 1)) == [2]


def test_expired_head_frees_its_key() -> None:
    bench = ordered(TopicSettings(pattern=Pattern("plant/**"), order="source", ttl_ms=3000))
    bench.publish(1, now=0.0)
    bench.say(Outcome.FAILED, 1, delay_s=1000.0)
    bench.publish(2, now=2.9)
    effects = bench.tick(4.0)
    assert letters(effects) == [(1, 2, "expired")]
    assert seqs(effects) == [2]


def test_priorities_of_a_source_are_keys_of_their_own() -> None:
    bench = ordered()
    bench.publish(1, priority=1)
    assert seqs(bench.publish(2, priority=5)) == [2]
    assert seqs(bench.publish(3, priority=1)) == []


def test_event_with_a_key_waits_for_its_key_only() -> None:
    bench = ordered(BY_KEY)
    assert keyed(bench, 1, "abac") == [1, 2, 4]
    bench.say(Outcome.FAILED, 1, delay_s=5.0)
    assert keyed(bench, 5, "abcd") == [8]
    assert seqs(bench.say(Outcome.ACCEPTED, 2)) == [6]
    assert redelivered(bench.tick(5.0)) == [(1, 2, 2)]
    assert seqs(bench.say(Outcome.ACCEPTED, 1, now=5.0)) == [3]
    assert seqs(bench.say(Outcome.ACCEPTED, 3, now=5.0)) == [5]


def test_key_is_one_across_sources() -> None:
    bench = ordered(BY_KEY)
    assert keyed(bench, 1, "a") == [1]
    columns = {"key": ["a", "b"]}
    assert seqs(bench.publish(1, 2, source=OTHER, columns=columns)) == [2]


def test_events_without_keys_are_ordered_by_their_source() -> None:
    bench = ordered(BY_KEY)
    assert seqs(bench.publish(1)) == [1]
    assert seqs(bench.publish(2)) == []


def test_event_held_across_a_reconnection_keeps_its_key_busy() -> None:
    bench = ordered()
    bench.publish(1)
    bench.publish(2)
    bench.give(PeerLeft())
    assert seqs(bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 2)])) == []
    assert seqs(bench.say(Outcome.ACCEPTED, 1)) == [2]


def test_events_held_across_a_reconnection_come_in_order_when_they_are_given_back_early() -> None:
    """They were retried on their own, in any order, if the queue had no room yet to read the journal."""
    bench = ordered()
    bench.publish(1, 4)
    bench.publish(5)
    bench.give(PeerLeft())
    assert seqs(bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 5)], credit=0)) == []
    bench.say(Outcome.RELEASED, 3, 5, attempt=1)
    bench.say(Outcome.RELEASED, 1, 3, attempt=1)
    assert seqs(bench.tick(10.0)) == []
    assert redelivered(bench.give(Credit(1, 1000), now=10.0)) == [(1, 5, 2)]
    assert seqs(bench.say(Outcome.ACCEPTED, 1, 5, now=10.0)) == [5]
    bench.say(Outcome.ACCEPTED, 5, now=10.0)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 6))}


def test_event_held_across_a_reconnection_may_end_before_the_queue_reads_the_journal() -> None:
    """A subscriber repeats what it said on the earlier connection: that it gave an event back, then that it ended."""
    bench = ordered()
    bench.publish(1, 2)
    bench.give(PeerLeft())
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 3)], credit=0)
    bench.say(Outcome.RELEASED, 1, 3, attempt=1)
    bench.say(Outcome.ACCEPTED, 1)
    assert redelivered(bench.give(Credit(1, 1000), now=10.0)) == [(2, 3, 2)]


def test_order_survives_a_restart() -> None:
    bench = ordered()
    bench.publish(1)
    bench.publish(2)
    bench.say(Outcome.FAILED, 1)
    again = bench.restart(topics=[BY_SOURCE])
    assert seqs(again.subscribe("audit")) + seqs(again.tick(10.0)) == [1]
    assert seqs(again.say(Outcome.ACCEPTED, 1, now=10.0)) == [2]


def test_subscriber_is_told_that_events_are_ordered() -> None:
    bench = ordered()
    [effect] = [one for one in bench.publish(1, 2) if isinstance(one, Redeliver)]
    assert effect.is_ordered


def test_too_many_waiting_keys_stop_the_cursor_and_lose_nothing() -> None:
    bench = ordered(BY_KEY, lanes_max=4)
    for first in range(1, 41, 2):
        bench.publish(first, 2, columns={"key": ["a", "b"]})
    got = [1, 2]
    while len(got) < 40:
        more = [seq for last in got[-2:] for seq in seqs(bench.say(Outcome.ACCEPTED, last))]
        assert more, got
        got += more
    bench.say(Outcome.ACCEPTED, 1, 41)
    assert got == list(range(1, 41))
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 41))}


def test_unnamed_subscriber_gets_everything_as_it_comes() -> None:
    bench = Bench(topics=[BY_SOURCE])
    bench.subscribe()
    assert seqs(bench.publish(1)) + seqs(bench.publish(2)) == [1, 2]


def test_another_node_gets_each_source_in_seq_order_whatever_the_keys_are() -> None:
    bench = Bench(topics=[BY_KEY], lease_s=5.0)
    bench.subscribe("relay", is_cache=True)
    assert keyed(bench, 1, "ab") == [1, 2]
    assert keyed(bench, 3, "cd") == []
    assert seqs(bench.say(Outcome.ACCEPTED, 1, 3)) == [3, 4]


def test_another_node_may_hold_events_for_as_long_as_it_is_away() -> None:
    bench = Bench(topics=[BY_KEY], lease_s=5.0)
    bench.subscribe("relay", is_cache=True)
    keyed(bench, 1, "ab")
    assert redelivered(bench.tick(60.0)) == []


def test_key_goes_on_when_an_event_that_was_given_back_ends_before_the_rest_of_its_unit() -> None:
    bench = ordered()
    bench.publish(1, 2)
    bench.publish(3)
    bench.say(Outcome.FAILED, 1, delay_s=9.0)
    bench.say(Outcome.REJECTED, 1)
    bench.say(Outcome.ACCEPTED, 2)
    assert redelivered(bench.tick(9.0)) == [(3, 4, 1)]

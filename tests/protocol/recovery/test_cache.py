"""Caches: they hold the newest events of each series within bounds, and return exactly the requested ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.protocol.publish import publisher as publishing
from reknit.protocol.publish.publisher import RESEND_S, SourcePublisher
from reknit.protocol.publish.storage_acks import StorageAcks
from reknit.protocol.recovery.cache import CacheBounds, MemoryCache, answer
from reknit.topic import Pattern
from reknit.wire.messages import Ack
from reknit.wire.recovery import Recover, Require, Stored
from tests.protocol.recovery.world import ALL, ANN, BOB, TOPIC, batch, cache


def seqs(batches: list[Batch]) -> list[int]:
    return [seq for one in batches for seq in range(one.first, one.stop)]


def test_a_cache_holds_events_that_match_its_pattern() -> None:
    held = cache(pattern="plant/**")
    assert held.put(batch(1), 0)
    assert not held.put(batch(1, topic="office/light"), 0)


def test_the_count_bounds_each_stream_on_its_own_and_to_the_event() -> None:
    held = cache(events_max=3)
    held.put(batch(1, 11), 0)
    held.put(batch(1, 3, source=BOB), 0)
    assert [(span.source, span.ranges, span.last) for span in held.survey(ALL)] == [
        (ANN, [(8, 11)], 10),
        (BOB, [(1, 3)], 2),
    ]
    assert seqs(held.find(TOPIC, ANN, 1, 100, 1 << 20)) == [8, 9, 10]


def test_bytes_bound_each_stream_but_the_newest_batch_stays() -> None:
    size = batch(11, 21).head.length
    held = MemoryCache(ALL, CacheBounds(bytes_max=2 * size))
    for first in range(11, 52, 10):
        held.put(batch(first, first + 10), 0)
        assert held.bytes <= 2 * size
    assert held.survey(ALL)[0].ranges == [(41, 61)]
    held.put(Batch.build(ANN, TOPIC, 61, [bytes(10 * size)], 0), 0)
    assert held.survey(ALL)[0].ranges == [(61, 62)]


def test_age_bounds_also_when_nothing_new_comes() -> None:
    held = cache(age_s_max=1.0)
    held.put(batch(1, us=0), 0)
    held.put(batch(2, us=900_000), 900_000)
    held.now_us = 1_500_000
    assert held.survey(ALL)[0].ranges == [(2, 3)]


def test_recover_by_pattern_gives_all_sources_or_the_last_of_each_or_the_newer() -> None:
    held = cache()
    held.put(batch(1, 4, us=0), 0)
    held.put(batch(4, 6, us=5_000_000), 5_000_000)
    held.put(batch(1, 3, source=BOB, us=5_000_000), 5_000_000)
    assert seqs(held.recover(ALL)) == [1, 2, 3, 4, 5, 1, 2]
    assert seqs(held.recover(ALL, count=1)) == [5, 2]
    assert seqs(held.recover(ALL, age_s=1.0)) == [4, 5, 1, 2]
    assert held.recover(Pattern("office/**")) == []


def test_events_that_came_out_of_order_or_twice_are_held_once_and_in_order() -> None:
    held = cache()
    for one in (batch(5, 8), batch(1, 3), batch(2, 6), batch(5, 8)):
        held.put(one, 0)
    assert seqs(held.find(TOPIC, ANN, 1, 10, 1 << 20)) == list(range(1, 8))
    assert not held.put(batch(1, 8), 0)


def test_evicted_events_are_not_held_again() -> None:
    held = cache(events_max=2)
    held.put(batch(1, 11), 0)
    assert not held.put(batch(3, 6), 0)


def test_an_answer_names_the_ranges_it_covers_and_stays_within_its_limit() -> None:
    held = cache()
    for seq in range(1, 11):
        held.put(batch(seq), 0)
    limit = 3 * batch(1).head.length
    found, covered = answer(held, Recover(1, TOPIC, ANN, [(2, 9)], limit))
    assert seqs(found) == [2, 3, 4]
    assert covered == [(2, 5)]


def test_empty_ranges_are_ignored() -> None:
    held = cache()
    held.put(batch(1, 4), 0)
    found, covered = answer(held, Recover(1, TOPIC, ANN, [(3, 3), (9, 9), (2, 4)], 1 << 20))
    assert seqs(found) == [2, 3]
    assert covered == [(2, 4)]


def test_a_forgotten_stream_leaves_nothing_behind() -> None:
    held = cache()
    held.put(batch(1), 0)
    held.forget((TOPIC, ANN))
    assert held.bytes == 0
    assert held.survey(ALL) == []


puts = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12)), max_size=20)


@given(puts, st.integers(0, 20))
def test_the_cache_holds_the_newest_of_any_events(rows: list[tuple[int, int]], events_max: int) -> None:
    held = cache(events_max=events_max)
    model: set[int] = set()
    floor = 1
    for first, count in rows:
        held.put(batch(first, first + count), 0)
        model |= {seq for seq in range(first, first + count) if seq >= floor}
        if events_max and len(model) > events_max:
            newest = sorted(model)[-events_max:]
            floor = max(floor, sorted(model)[-events_max - 1] + 1)
            model = set(newest)
    assert seqs(held.find(TOPIC, ANN, 1, 1_000, 1 << 30)) == sorted(model)


# -- storage acks


def test_an_event_is_confirmed_when_enough_caches_stored_it() -> None:
    publisher = SourcePublisher(ANN, TOPIC, stored_by=3)
    publisher.receive(publishing.Connected(), "node", 0.0)
    assert publisher.take_effects() == [publishing.SendToNode(Require(ANN, TOPIC))]
    publisher.put([b"1", b"2"], 0)
    publisher.take_effects()
    publisher.receive(Ack(ANN, 2), "node", 0.1)
    publisher.receive(Stored(ANN, 2, "edge"), "node", 0.2)
    assert publisher.take_effects() == []
    publisher.receive(Stored(ANN, 2, "edge"), "node", 0.3)
    assert publisher.take_effects() == [], "the same cache counts once"
    publisher.receive(Stored(ANN, 2, "core"), "node", 0.4)
    assert publisher.take_effects() == [publishing.Confirm(3)]


def test_events_that_too_few_caches_stored_are_sent_again_with_the_same_seq() -> None:
    publisher = SourcePublisher(ANN, TOPIC, stored_by=2)
    publisher.receive(publishing.Connected(), "node", 0.0)
    sent = publisher.put([b"1"], 0)
    publisher.receive(Ack(ANN, 1), "node", 0.1)
    publisher.take_effects()
    publisher.tick(1.0)
    assert publisher.next_deadline() == 1.0 + RESEND_S
    publisher.tick(1.0 + RESEND_S)
    assert publishing.SendBytes(sent.data) in publisher.take_effects()
    publisher.receive(Stored(ANN, 1, "edge"), "node", 5.0)
    assert publisher.take_effects() == [publishing.Confirm(2)]


def test_too_few_caches_are_told_after_some_repetitions() -> None:
    publisher = SourcePublisher(ANN, TOPIC, stored_by=3)
    publisher.receive(publishing.Connected(), "node", 0.0)
    assert publisher.shortage() is None, "nothing waits"
    publisher.put([b"1"], 0)
    publisher.receive(Ack(ANN, 1), "node", 0.1)
    for number in range(3):
        assert publisher.shortage(2) is None
        publisher.tick(1.0 + number * RESEND_S)
    shortage = publisher.shortage(2)
    assert shortage is not None
    assert (shortage.first, shortage.copies, shortage.wanted) == (1, 1, 3)


def test_a_node_that_began_anew_does_not_count_until_it_has_stored_again() -> None:
    publisher = SourcePublisher(ANN, TOPIC, stored_by=2)
    publisher.receive(publishing.Connected(), "node", 0.0)
    sent = publisher.put([b"1"], 0)
    publisher.receive(Ack(ANN, 1), "node", 0.1)
    publisher.receive(publishing.Disconnected(), "node", 0.2)
    publisher.receive(publishing.Connected(), "node", 0.3)
    assert publishing.SendBytes(sent.data) in publisher.take_effects()
    publisher.receive(Stored(ANN, 1, "edge"), "node", 0.4)
    assert publisher.take_effects() == []
    publisher.receive(Ack(ANN, 1), "node", 0.5)
    assert publisher.take_effects() == [publishing.Confirm(2)]


def test_a_publishers_state_does_not_depend_on_how_many_subscribe() -> None:
    publisher = SourcePublisher(ANN, TOPIC)
    publisher.receive(publishing.Connected(), "node", 0.0)
    for seq in range(1, 101):
        publisher.put([b"x"], 0)
        publisher.receive(Ack(ANN, seq), "node", 0.0)
    assert not publisher.unacked


def test_replies_count_caches_not_messages() -> None:
    replies = StorageAcks(2)
    assert [replies.note("edge", seq) for seq in (1, 5, 9)] == [0, 0, 0]
    assert replies.note("core", 3) == 3
    assert (replies.count(3), replies.count(4)) == (2, 1)

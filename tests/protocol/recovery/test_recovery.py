"""Recovery, case by case: missing events are recovered, or reported as lost once, in their place."""

from __future__ import annotations

from reknit.protocol.publish.heartbeat import Heartbeats
from reknit.protocol.recovery.cache import NO_SOURCE
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.history import History
from reknit.protocol.recovery.search import SearchSettings
from tests.protocol.recovery.world import ANN, BOB, TOPIC, World, batch, cache

QUICK = SearchSettings(timeout_s=1.0, patience_s=5.0)


def test_case_01_a_late_joiner_gets_cached_events_then_live_events() -> None:
    world = World({"cache": cache(events_max=3)}, history=History())
    world.put(*(batch(seq) for seq in range(1, 5)), is_lost=True)
    world.start()
    world.put(batch(5))
    assert world.out == [2, 3, 4, 5]


def test_case_02_a_gap_is_found_by_the_next_event_and_filled_before_it() -> None:
    world = World()
    world.put(batch(1))
    world.put(batch(2), batch(3), batch(4), is_lost=True)
    world.wait(60.0)
    assert world.out == [1]
    world.put(batch(5))
    assert world.out == [1, 2, 3, 4, 5]
    assert world.asked == [("cache", [(2, 5)])]


def test_case_03_periodic_queries_find_a_lost_tail_without_a_new_event() -> None:
    world = World(query_s=1.0)
    world.start()
    world.put(batch(1))
    world.put(batch(2), batch(3), batch(4), is_lost=True)
    world.wait(1.0)
    assert world.out == [1, 2, 3, 4]


def test_case_04_a_heartbeat_finds_a_lost_tail() -> None:
    world = World()
    world.put(batch(1))
    world.put(batch(2), batch(3), batch(4), is_lost=True)
    world.beat(4)
    assert world.out == [1, 2, 3, 4]
    assert world.asked == [("cache", [(2, 5)])]


def test_case_05_without_caches_a_gap_is_reported_then_the_rest_follows() -> None:
    world = World({})
    world.put(batch(1))
    world.put(batch(2), is_lost=True)
    world.put(batch(3))
    assert world.out == [1, ("lost", 2, 3), 3]


def test_case_06_events_that_the_cache_evicted_are_lost_and_those_it_holds_are_not() -> None:
    world = World({"cache": cache(events_max=1)})
    world.put(batch(1))
    world.put(batch(2), batch(3), batch(4), is_lost=True)
    world.put(batch(5), into=[])
    assert world.out == [1, ("lost", 2, 4), 4, 5]


def test_case_07_events_published_while_a_late_publisher_was_apart_come_first() -> None:
    world = World(history=History())
    world.start()
    world.put(batch(1), batch(2), batch(3), is_lost=True)
    world.put(batch(4))
    assert world.out == [1, 2, 3, 4]


def test_case_07_a_late_publisher_is_noticed_by_its_heartbeat() -> None:
    world = World(history=History())
    world.start()
    world.put(batch(1), batch(2), batch(3), is_lost=True)
    world.beat(3)
    assert world.out == [1, 2, 3]


def test_case_07_a_late_publisher_is_noticed_by_a_periodic_query() -> None:
    world = World(query_s=1.0)
    world.start()
    world.put(batch(1, 4), is_lost=True)
    world.wait(1.0)
    assert world.out == [1, 2, 3]


def test_case_09_history_while_events_keep_coming_is_complete_in_order_and_without_duplicates() -> None:
    world = World(history=History(), asking=SearchSettings(bytes_max=100_000))
    for first in range(1, 100_001, 1_000):
        world.put(batch(first, first + 1_000), is_lost=True)
    world.hung = {"cache"}
    world.start()
    world.put(batch(100_001, 100_011))
    world.wait(0.5)
    world.hung.clear()
    world.put(batch(100_011, 100_021))
    world.wait(10.0)
    world.put(batch(100_021, 100_031))
    assert world.out == list(range(1, 100_031))


def test_case_10_the_last_two_of_each_of_two_publishers() -> None:
    world = World(history=History(count=2))
    world.put(batch(1, 6), batch(1, 4, source=BOB), is_lost=True)
    world.start()
    assert world.out == [4, 5, ("b", 2), ("b", 3)]


def test_case_11_history_by_age_gives_only_the_newer() -> None:
    world = World(history=History(age_s=0.8))
    world.put(batch(1, us=0), batch(2, us=500_000), batch(3, us=1_000_000), is_lost=True)
    world.now = 1.2
    world.start()
    assert world.out == [2, 3]


def test_case_12_one_report_for_nine_thousand_lost_then_the_rest() -> None:
    world = World({"cache": cache(events_max=1_000)})
    world.put(batch(1))
    for first in range(2, 10_002, 500):
        world.put(batch(first, first + 500), is_lost=True)
    world.put(batch(10_002), into=[])
    assert world.out == [1, ("lost", 2, 9_002), *range(9_002, 10_003)]


def test_case_13_events_without_a_source_pass() -> None:
    world = World()
    for seq in (1, 5, 5, 2):
        world.arrive(batch(seq, source=NO_SOURCE))
    assert world.out == [("\0", 1), ("\0", 5), ("\0", 5), ("\0", 2)]
    assert world.recovery.questions == 0


def test_case_13_a_cache_ignores_events_without_a_source() -> None:
    held = cache()
    assert not held.put(batch(1, source=NO_SOURCE), 0)


def test_case_14_a_hung_cache_does_not_hold_live_events_of_a_late_joiner() -> None:
    world = World({"near": cache(), "hung": cache()}, history=History())
    world.put(batch(1, 4), is_lost=True, into=["near"])
    world.hung = {"hung"}
    world.start()
    world.put(batch(4))
    assert world.out == [1, 2, 3, 4]


def test_case_14_a_hung_cache_delays_only_the_gap_and_only_until_the_next_is_asked() -> None:
    world = World({"hung": cache(), "next": cache()}, asking=QUICK)
    world.hung = {"hung"}
    world.put(batch(1), batch(1, source=BOB))
    world.put(batch(2), is_lost=True)
    world.put(batch(3), batch(2, source=BOB))
    assert world.out == [1, ("b", 1), ("b", 2)]
    world.wait(QUICK.timeout_s)
    assert world.out == [1, ("b", 1), ("b", 2), 2, 3]


def test_case_15_a_heartbeat_sent_during_the_outage_is_not_the_last() -> None:
    beats = Heartbeats(TOPIC, ANN, period_s=1.0)
    world = World()
    world.put(batch(1))
    world.put(batch(2), batch(3), is_lost=True)
    beats.published(3, 0.0)
    assert [beat.seq for beat in beats.tick(1.0)] == [3], "lost in the outage"
    due = beats.next_deadline()
    assert due is not None
    [again] = beats.tick(due)
    world.beat(again.seq)
    assert world.out == [1, 2, 3]


def test_case_15_a_heartbeat_is_repeated_at_once_after_a_reconnection() -> None:
    beats = Heartbeats(TOPIC, ANN, period_s=10.0)
    beats.published(3, 0.0)
    assert beats.tick(10.0)
    beats.connected(11.0)
    assert [beat.seq for beat in beats.tick(11.0)] == [3]


def test_case_16_events_that_the_nearest_cache_lacks_are_requested_from_the_next() -> None:
    world = World({"edge": cache(), "core": cache()})
    world.put(batch(1))
    world.put(batch(2, 52), is_lost=True, into=["edge", "core"])
    world.put(batch(52, 62), is_lost=True, into=["core"])
    world.put(batch(62, 102), is_lost=True, into=["edge", "core"])
    world.put(batch(102))
    assert world.out == list(range(1, 103))
    assert world.asked == [("edge", [(2, 102)]), ("core", [(52, 62)])]


def test_lost_last_events_that_no_cache_has_are_reported() -> None:
    world = World({"cache": cache()})
    world.put(batch(1))
    world.beat(4)
    assert world.out == [1, ("lost", 2, 5)]
    world.put(batch(5))
    world.beat(5)
    assert world.out == [1, ("lost", 2, 5), 5], "and only once"


def test_a_loss_is_reported_once_even_if_the_events_come_later() -> None:
    world = World({})
    world.put(batch(1), batch(3))
    world.arrive(batch(2))
    assert world.out == [1, ("lost", 2, 3), 3]


def test_a_silent_cache_is_asked_again_until_patience_ends() -> None:
    world = World(asking=QUICK)
    world.hung = {"cache"}
    world.put(batch(1))
    world.put(batch(2), is_lost=True)
    world.put(batch(3))
    world.wait(QUICK.patience_s - 1.0)
    assert world.out == [1]
    assert len(world.asked) > 1
    world.wait(2 * QUICK.timeout_s)
    assert world.out == [1, ("lost", 2, 3), 3]


def test_a_cache_that_comes_back_in_time_heals_the_gap() -> None:
    world = World(asking=QUICK)
    world.hung = {"cache"}
    world.put(batch(1))
    world.put(batch(2), is_lost=True)
    world.put(batch(3))
    world.wait(3.0)
    world.wake("cache")
    assert world.out == [1, 2, 3]


def test_an_event_that_arrives_after_all_fills_its_gap_and_nobody_is_asked_twice() -> None:
    world = World()
    world.hung = {"cache"}
    world.put(batch(1), batch(3))
    world.arrive(batch(2))
    world.wait(60.0)
    assert world.out == [1, 2, 3]
    assert world.asked == [("cache", [(2, 3)])]


def test_several_gaps_are_asked_for_as_exactly_their_ranges() -> None:
    world = World()
    world.hung = {"cache"}
    world.put(batch(1), batch(3), batch(6, 8), batch(9))
    for missed in (batch(2), batch(4, 6), batch(8)):
        world.caches["cache"].put(missed, 0)
    world.wake("cache")
    assert world.out == list(range(1, 10))
    assert world.asked[-1] == ("cache", [(2, 3), (4, 6), (8, 9)])


def test_events_held_behind_a_gap_are_bounded_and_dropped_ones_are_recovered() -> None:
    world = World(asking=QUICK, holding=HoldLimits(events_max=10))
    world.put(batch(1))
    world.put(batch(2), is_lost=True)
    world.hung = {"cache"}
    for seq in range(3, 41):
        world.put(batch(seq))
        assert world.recovery.held_events((TOPIC, ANN)) <= 11
    assert world.out == [1]
    assert world.dropped > 0
    world.wake("cache")
    world.wait(1.0)
    assert world.out == list(range(1, 41))
    assert world.recovery.held_bytes == 0


def test_events_dropped_behind_a_gap_that_no_cache_has_are_reported_in_their_place() -> None:
    world = World({"cache": cache(events_max=5)}, asking=QUICK, holding=HoldLimits(events_max=10))
    world.put(batch(1))
    world.put(batch(2), is_lost=True)
    world.hung = {"cache"}
    for seq in range(3, 41):
        world.put(batch(seq))
    world.wake("cache")
    world.wait(1.0)
    seqs = [seq for seq in world.out if isinstance(seq, int)]
    [gap, rest] = [loss for loss in world.out if isinstance(loss, tuple)]
    assert gap == ("lost", 2, 3)
    assert seqs == [1, *range(3, rest[1]), *range(36, 41)], "held events, and cached ones"
    assert rest == ("lost", rest[1], 36), "the rest is reported once, as one range"
    assert world.recovery.held_bytes == 0


def test_an_answer_that_does_not_fit_is_continued() -> None:
    world = World(asking=SearchSettings(bytes_max=1_000))
    world.put(batch(1))
    world.put(*(batch(seq) for seq in range(2, 100)), is_lost=True)
    world.put(batch(100))
    assert world.out == list(range(1, 101))
    assert len(world.asked) > 5


def test_no_question_is_asked_while_there_is_no_room_for_the_answer() -> None:
    world = World()
    world.recovery.pause(True)
    world.put(batch(1), batch(2))
    world.put(batch(3), is_lost=True)
    world.put(batch(4))
    assert world.out == [1, 2]
    assert not world.asked
    assert world.recovery.pause(False)
    world.recovery.resume(1.0)
    world.pump()
    assert world.out == [1, 2, 3, 4]


def test_the_first_event_of_a_source_passes_whatever_its_seq() -> None:
    world = World()
    world.put(batch(7), batch(8))
    assert world.out == [7, 8]
    assert world.recovery.questions == 0


def test_a_heartbeat_of_a_source_never_seen_is_where_it_begins() -> None:
    world = World()
    world.beat(3)
    assert world.out == []
    world.put(batch(4), is_lost=True)
    world.put(batch(5))
    assert world.out == [4, 5]


def test_a_survey_may_overtake_the_first_events_of_a_new_source() -> None:
    world = World(asking=QUICK)
    world.put(batch(1, 4), is_lost=True)
    world.recovery.look(world.now)
    world.pump()
    assert world.out == []
    world.arrive(batch(1, 3))
    world.arrive(batch(3, 4))
    world.put(batch(4))
    assert world.out == [1, 2, 3, 4]
    world.arrive(batch(1, 4))
    assert world.out == [1, 2, 3, 4], "and never twice"


def test_a_heartbeat_may_overtake_the_first_events_of_a_new_source() -> None:
    world = World(asking=QUICK)
    world.put(batch(1, 4), is_lost=True)
    world.beat(3)
    world.arrive(batch(1, 4))
    world.put(batch(4))
    assert world.out == [1, 2, 3, 4]
    assert not world.asked


def test_stable_times_need_no_question() -> None:
    world = World({"edge": cache(), "core": cache()})
    world.start()
    for first in range(1, 10_001, 10):
        world.put(batch(first, first + 10), batch(first, first + 10, source=BOB))
    world.wait(3_600.0)
    assert world.recovery.questions == 0
    assert world.recovery.next_deadline() is None


def test_overlapping_history_of_two_caches_is_merged() -> None:
    world = World({"one": cache(), "two": cache()}, history=History())
    world.put(batch(1, 30), is_lost=True, into=["one"])
    world.put(batch(20, 60), is_lost=True, into=["two"])
    world.start()
    assert world.out == list(range(1, 60))


def test_history_of_a_source_that_only_the_further_cache_knows() -> None:
    world = World({"one": cache(), "two": cache()}, history=History())
    world.put(batch(1, 3), is_lost=True, into=["one"])
    world.put(batch(1, 3, source=BOB), is_lost=True, into=["two"])
    world.start()
    assert world.out == [1, 2, ("b", 1), ("b", 2)]

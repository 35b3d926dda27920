"""The benchmark's check notices events that a subject loses, duplicates or reorders."""

from collections.abc import Callable

import pytest

from bench.events import PROBE, Check, Feed, Watch, WrongEvent, first_word


def events_of(lane: int, count: int, size: int = 100) -> list[bytes]:
    return list(Feed(lane, size, seconds=0, count=count).events())


class Told(Watch):
    def __init__(self) -> None:
        self.words: list[str] = []

    def joined(self) -> None:
        self.words.append("joined")

    def ended(self) -> None:
        self.words.append("ended")


def test_every_event_in_order_ends_the_lane_once() -> None:
    told = Told()
    check = Check(1, 100, told)
    assert [check.one(event) for event in events_of(0, 5)] == [False] * 4 + [True]
    assert (check.received, told.words) == (5, ["ended"])


def test_batches_carry_the_same_events_as_single_calls() -> None:
    batches = list(Feed(0, 100, seconds=0, count=1_001).batches(300))
    assert [event for batch in batches for event in batch] == events_of(0, 1_001)
    check = Check(1, 100)
    assert [check.many(batch) for batch in batches][-1] is True
    assert check.received == 1_001


def test_lanes_may_take_turns_in_single_events_and_in_batches() -> None:
    first, second = events_of(0, 4), events_of(1, 4)
    one_by_one = Check(2, 100)
    assert [one_by_one.one(event) for pair in zip(first, second, strict=True) for event in pair][-1]
    in_batches = Check(2, 100)
    assert [in_batches.many(batch) for batch in (first[:2], second[:3], first[2:], second[3:])][-1]
    assert one_by_one.received == in_batches.received == 8


def lose(events: list[bytes]) -> list[bytes]:
    return events[:5] + events[6:]


def double(events: list[bytes]) -> list[bytes]:
    return events[:5] + events[4:]


def swap(events: list[bytes]) -> list[bytes]:
    return [*events[:5], events[6], events[5], *events[7:]]


def cut(events: list[bytes]) -> list[bytes]:
    return [*events[:5], events[5][:-1], *events[6:]]


@pytest.mark.parametrize("spoil", [lose, double, swap, cut])
def test_a_spoiled_stream_is_noticed_either_way(spoil: Callable[[list[bytes]], list[bytes]]) -> None:
    spoiled = spoil(events_of(0, 20))
    one_by_one, in_batches = Check(1, 100), Check(1, 100)
    with pytest.raises(WrongEvent):
        [one_by_one.one(event) for event in spoiled]
    with pytest.raises(WrongEvent):
        in_batches.many(spoiled)


def test_probes_of_every_lane_tell_that_a_subscriber_has_joined_and_count_for_nothing() -> None:
    told = Told()
    check = Check(2, 100, told)
    for lane in (0, 0, 1, 1):
        check.one(Feed(lane, 100, seconds=0, count=1).probe())
        check.many([Feed(lane, 100, seconds=0, count=1).probe()])
    assert (told.words, check.received) == (["joined"], 0)
    assert first_word(1) | PROBE not in (first_word(0), first_word(1))


def test_a_timed_event_gives_its_latency() -> None:
    feed, check = Feed(0, 100, seconds=0.001), Check(1, 100)
    words = [word for due in feed.due(2_000) for word in due]
    assert [check.one_timed(feed.timed(word)) for word in words] == [False, False, True]
    assert len(check.latencies_ns) == feed.sent == 3
    assert min(check.latencies_ns) >= 0

"""Gaps are asked for one after the other, everywhere, up to a limit; what was not asked for is told."""

from __future__ import annotations

import pytest

from reknit.batch import Batch
from reknit.errors import NotConnected
from reknit.spark.stages.settle import recover as recovery
from reknit.spark.stages.settle.recover import SeriesGap, recover
from tests.spark.running_node import batches, source


class FakeCache:
    """A cache with these batches, or one that is away."""

    def __init__(self, *held: Batch, is_away: bool = False) -> None:
        self.held, self.is_away = held, is_away
        self.asked: list[tuple[int, int]] = []

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        if self.is_away:
            raise NotConnected("tcp://fake", "it is away")
        self.asked.append((start, stop))
        fitting = [b for b in self.held if (b.topic, b.source) == (topic, source)]
        return [b.cut(start, stop) for b in fitting if b.first < stop and b.stop > start]


def gap(start: int, stop: int, name: str = "a") -> SeriesGap:
    return SeriesGap("plant/temp", source(name), start, stop)


def test_one_cache_after_the_other_is_asked_for_the_rest() -> None:
    caches = [("one", FakeCache(*batches("a", 1, 11))), ("two", FakeCache(*batches("a", 1, 16, 15)))]
    found = recover([gap(5, 20)], caches)
    assert [(name, b.first, b.stop) for name, b in found.batches] == [("one", 5, 11), ("two", 11, 16)]
    assert found.is_complete
    assert found.asked == [gap(5, 20)]


def test_gap_beyond_the_limit_was_not_asked_for() -> None:
    cache = FakeCache(*batches("a", 1, 11), *batches("b", 1, 11), *batches("c", 1, 11))
    found = recover([gap(1, 11, name) for name in "abc"], [("one", cache)], bytes_max=1)
    assert found.asked == [gap(1, 11, "a")]
    assert not found.is_complete
    assert found.is_reachable


def test_no_gap_counts_as_asked_for_while_a_cache_is_away() -> None:
    has_some = FakeCache(*batches("a", 1, 11))
    found = recover([gap(1, 11), gap(31, 41)], [("away", FakeCache(is_away=True)), ("one", has_some)])
    assert len(found.batches) == 1
    assert (found.asked, found.is_complete, found.is_reachable) == ([], False, False)


def test_long_empty_range_takes_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "ASK_EVENTS_MAX", 10)
    monkeypatch.setattr(recovery, "EMPTY_EVENTS_MAX", 160)
    cache = FakeCache(*batches("a", 981, 1001))
    found = recover([gap(1, 1001)], [("one", cache)])
    assert [(b.first, b.stop) for _, b in found.batches] == [(981, 991), (991, 1001)]
    assert cache.asked[:3] == [(1, 11), (11, 51), (51, 211)]
    assert max(stop - start for start, stop in cache.asked) == 160

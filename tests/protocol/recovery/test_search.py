"""The search for missing ranges, among caches that answer beside the question."""

from __future__ import annotations

from itertools import pairwise

import pytest

from reknit.protocol.recovery.search import AskCache, Missing, Search, SearchSettings
from reknit.seqset import Range

SERIES = ("plant/a", b"s" * 16)
OTHER = ("plant/b", b"s" * 16)
SETTINGS = SearchSettings(timeout_s=1.0, patience_s=30.0)


def asks(search: Search) -> list[AskCache]:
    return [effect for effect in search.take_effects() if isinstance(effect, AskCache)]


@pytest.mark.parametrize("covered", [[], [(-5, 3), (9, 2), (0, 0)], [(100, 200)]])
def test_a_cache_that_answers_nothing_is_asked_ever_less_often_until_the_range_is_lost(
    covered: list[Range],
) -> None:
    search, now, asked_at = Search(["liar"], SETTINGS), 0.0, list[float]()
    search.want(SERIES, 3, 7, now)
    lost: list[Missing] = []
    while search:
        for effect in search.take_effects():
            if isinstance(effect, Missing):
                lost.append(effect)
            else:
                asked_at.append(now)
                search.answered(effect.number, covered, True, now)
        due = search.next_deadline()
        if due is not None:
            now = due
            search.tick(now)
    lost += [effect for effect in search.take_effects() if isinstance(effect, Missing)]
    assert lost == [Missing(SERIES, 3, 7)]
    assert now == SETTINGS.patience_s
    waits = [later - earlier for earlier, later in pairwise(asked_at)]
    assert waits[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
    assert set(waits[6:]) == {5.0}


def test_the_next_cache_is_asked_at_once() -> None:
    search = Search(["liar", "honest"], SETTINGS)
    search.want(SERIES, 3, 7, 0.0)
    [ask] = asks(search)
    search.answered(ask.number, [], True, 0.1)
    [ask] = asks(search)
    assert (ask.cache, ask.ranges) == ("honest", [(3, 7)])


def test_a_cache_that_answers_nothing_of_one_series_is_asked_for_others() -> None:
    search = Search(["cache"], SETTINGS)
    search.want(SERIES, 3, 7, 0.0)
    [ask] = asks(search)
    search.answered(ask.number, [], True, 0.1)
    search.want(OTHER, 1, 2, 0.1)
    assert [(ask.series, ask.ranges) for ask in asks(search)] == [(OTHER, [(1, 2)])]


def test_an_answer_to_a_part_of_the_question_is_followed_by_the_rest_at_once() -> None:
    search = Search(["cache"], SETTINGS)
    search.want(SERIES, 3, 7, 0.0)
    [ask] = asks(search)
    search.found(SERIES, 3, 5)
    search.answered(ask.number, [(3, 5)], True, 0.1)
    assert [(ask.cache, ask.ranges) for ask in asks(search)] == [("cache", [(5, 7)])]


def test_words_without_content_give_a_cache_no_more_time() -> None:
    search = Search(["liar", "honest"], SETTINGS)
    search.want(SERIES, 3, 7, 0.0)
    [ask] = asks(search)
    for tenth in range(1, 10):
        search.answered(ask.number, [], False, tenth / 10)
        search.heard("liar", tenth / 10)
    search.tick(1.0)
    assert [ask.cache for ask in asks(search)] == ["honest"]


def test_events_that_come_give_a_cache_more_time_for_all_its_answers() -> None:
    search = Search(["cache"], SETTINGS)
    search.want(SERIES, 3, 7, 0.0)
    search.want(OTHER, 1, 9, 0.0)
    assert len(asks(search)) == 2
    search.found(SERIES, 3, 4)
    search.heard("cache", 0.9)
    search.tick(1.5)
    assert search.next_deadline() == pytest.approx(1.9)


def test_a_cache_that_answers_again_is_trusted_again() -> None:
    search = Search(["cache"], SETTINGS)
    search.want(SERIES, 3, 7, 0.0)
    for at in (0.0, 0.11, 0.32):
        search.tick(at)
        [ask] = asks(search)
        search.answered(ask.number, [], True, at)
    search.tick(0.8)
    [ask] = asks(search)
    search.found(SERIES, 3, 5)
    search.answered(ask.number, [(3, 5)], True, 0.8)
    [ask] = asks(search)
    search.answered(ask.number, [], True, 0.8)
    assert search.next_deadline() == pytest.approx(0.9)

"""Surveys of caches: where the series of a subscription start."""

from reknit.protocol.recovery.history import History, Surveys
from reknit.wire.recovery import Span

OLD, NEW = ("plant/a", b"o" * 16), ("plant/a", b"n" * 16)


def span(series: tuple[str, bytes], first: int, last: int) -> Span:
    return Span(*series, [(first, last + 1)], last)


def ask(surveys: Surveys) -> int:
    [(_, number)] = surveys.ask(["edge"], now=0.0)
    return number


def test_history_limits_a_source_that_was_there_before() -> None:
    surveys = Surveys(History(count=2), timeout_s=1.0)
    assert surveys.surveyed(ask(surveys), "edge", [span(OLD, 1, 8)], is_last=True) == {OLD: (7, 9)}
    assert surveys.surveyed(ask(surveys), "edge", [span(OLD, 1, 9)], is_last=True) == {OLD: (8, 10)}


def test_source_that_a_cache_did_not_have_before_is_not_history() -> None:
    surveys = Surveys(History(count=2), timeout_s=1.0)
    surveys.surveyed(ask(surveys), "edge", [span(OLD, 1, 8)], is_last=True)
    assert surveys.surveyed(ask(surveys), "edge", [span(NEW, 1, 8)], is_last=True) == {NEW: (1, 9)}


def test_source_that_a_cache_tells_first_after_it_was_away_is_history() -> None:
    surveys = Surveys(History(count=2), timeout_s=1.0)
    ask(surveys)
    surveys.unreachable("edge")
    assert surveys.surveyed(ask(surveys), "edge", [span(NEW, 1, 8)], is_last=True) == {NEW: (7, 9)}

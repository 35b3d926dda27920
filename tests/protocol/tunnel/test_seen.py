"""The memory of delivered events."""

from hypothesis import given
from hypothesis import strategies as st

from reknit.protocol.tunnel.seen_events import GRACE_S, SeenEvents


def test_a_key_is_new_once() -> None:
    seen = SeenEvents()
    assert seen.add("a", 0.0)
    assert not seen.add("a", 1.0)
    assert "a" in seen


def test_cache_entries_are_stale_and_may_be_discarded_after_remaining_for_the_grace_period() -> None:
    seen = SeenEvents(60.0)
    seen.add("a", 0.0)
    assert not seen.add("a", 60.0)
    assert seen.add("a", 60.1)


def test_the_default_grace_period_is_60_seconds() -> None:
    assert GRACE_S == SeenEvents().grace_s == 60.0


def test_a_repeat_does_not_make_an_entry_younger() -> None:
    seen = SeenEvents(10.0)
    seen.add("a", 0.0)
    seen.add("a", 9.0)
    seen.discard_stale(10.5)
    assert "a" not in seen


def test_there_are_never_more_entries_than_allowed_and_early_evictions_are_counted() -> None:
    seen = SeenEvents(60.0, entries_max=3)
    for number in range(10):
        seen.add(number, 0.0)
    assert (len(seen), seen.forgotten) == (3, 7)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 5)), max_size=60))
def test_it_agrees_with_a_plain_model(steps: list[tuple[int, float]]) -> None:
    seen, model, now = SeenEvents(7.0), dict[int, float](), 0.0
    for key, passed in steps:
        now += passed
        model = {one: at for one, at in model.items() if now - at <= 7.0}
        assert seen.add(key, now) == (key not in model)
        model.setdefault(key, now)
        assert len(seen) == len(model)

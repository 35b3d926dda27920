"""The window of a sender's counters: each is new once, and what is too old is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.protocol.sealing.replay_window import WINDOW, ReplayWindow

steps = st.one_of(
    st.integers(1, 200),
    st.integers(1, 2 * WINDOW),
    st.integers(1, 1 << 63),
    st.sampled_from([WINDOW, WINDOW + 1]),
)


@given(st.lists(steps, max_size=60))
def test_window_agrees_with_a_set_of_counters(counters: list[int]) -> None:
    window, seen = ReplayWindow(), set[int]()
    for counter in counters:
        is_new = counter not in seen and counter > max(seen, default=0) - WINDOW
        assert window.is_new(counter) is is_new
        if is_new:
            window.add(counter)
            seen.add(counter)
        assert window.high == max(seen, default=0)


@given(st.integers(1, 1 << 40), st.permutations(range(70)))
def test_datagrams_that_overtake_each_other_are_all_new_once(start: int, order: list[int]) -> None:
    window = ReplayWindow()
    for offset in order:
        assert window.is_new(start + offset)
        window.add(start + offset)
    assert not any(window.is_new(start + offset) for offset in order)


def test_a_counter_just_inside_the_window_is_new_and_the_next_older_one_is_not() -> None:
    window = ReplayWindow()
    window.add(3 * WINDOW)
    assert window.is_new(2 * WINDOW + 1)
    assert not window.is_new(2 * WINDOW)


def test_bits_of_an_earlier_round_of_the_ring_are_cleared() -> None:
    window = ReplayWindow()
    for counter in range(1, 200):
        window.add(counter)
    window.add(3 * WINDOW)
    assert all(window.is_new(counter) for counter in range(2 * WINDOW + 1, 3 * WINDOW))

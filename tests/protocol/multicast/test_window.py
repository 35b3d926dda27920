"""The window, against the cases of its specification and a plain model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.protocol.multicast.window import Window


def window(capacity: int, offset: int = 0, bytes_max: int = 1 << 40) -> Window[str]:
    return Window(capacity, offset, bytes_max)


def add(target: Window[str], *seqs: int) -> list[bool]:
    return [target.add(seq, seq + 1, f"e{seq}", 10) for seq in seqs]


def taken(target: Window[str]) -> list[int]:
    return [seq for slot in target.take() for seq in range(slot.start, slot.stop)]


def test_first_seq_is_one_and_zero_is_refused() -> None:
    assert add(window(32), 0, 1) == [False, True]


def test_a_seq_received_twice_keeps_the_first_value() -> None:
    mine = window(32)
    assert mine.add(1, 2, "first", 1)
    assert not mine.add(1, 2, "second", 1)
    assert [slot.value for slot in mine.take()] == ["first"]


def test_exactly_capacity_fits_and_one_more_is_refused() -> None:
    mine = window(10)
    assert add(mine, *range(1, 12)) == [True] * 10 + [False]
    assert mine.room == 0


def test_the_offset_decides_which_seqs_fit() -> None:
    mine = window(5, 20)
    assert add(mine, 10, 20, 25, 26) == [False, False, True, False]
    assert mine.state == (20, 20, 25, 1)
    assert mine.missing() == [(21, 25)]


def test_delivery_stops_at_a_gap_and_continues_when_it_is_filled() -> None:
    mine = window(32)
    add(mine, 1, 2, 4, 5, 6)
    assert mine.missing() == [(3, 4)]
    assert taken(mine) == [1, 2]
    mine.ack(2)
    assert mine.state == (2, 2, 6, 3)
    add(mine, 3)
    assert taken(mine) == [3, 4, 5, 6]
    assert add(mine, 3) == [False]


def test_a_batch_is_one_range_and_one_slot() -> None:
    mine = window(100)
    assert mine.add(1, 51, "batch", 5000)
    assert mine.add(51, 101, "next", 5000)
    assert [(slot.start, slot.stop, slot.value) for slot in mine.take()] == [
        (1, 51, "batch"),
        (51, 101, "next"),
    ]
    assert mine.bytes == 10000
    mine.ack(50)
    assert (mine.bytes, mine.room) == (5000, 50)


def test_a_batch_that_starts_before_the_window_is_taken_from_its_start() -> None:
    mine = window(32, 100)
    assert mine.add(95, 106, "batch", 1)
    assert [(slot.start, slot.stop) for slot in mine.take()] == [(101, 106)]


def test_a_batch_that_ends_beyond_the_window_is_dropped_whole() -> None:
    mine = window(10)
    assert not mine.add(5, 12, "batch", 1)
    assert mine.state == (0, 0, 0, 0)


def test_an_ack_never_passes_the_delivered_events() -> None:
    mine = window(10)
    add(mine, 1, 2, 4)
    mine.take()
    mine.ack(4)
    assert mine.acked == 2


def test_acked_events_can_be_found_until_everyone_has_them() -> None:
    mine = window(10)
    add(mine, 1, 2, 3)
    mine.take()
    mine.ack(3)
    assert [slot.start for slot in mine.find(2, 4)] == [2, 3]
    mine.forget(2)
    assert [slot.start for slot in mine.find(1, 4)] == [3]
    assert mine.held() == [(3, 4)]


def test_events_that_the_sender_must_have_purged_are_forgotten_by_count() -> None:
    mine = window(4)
    for seq in range(1, 11):
        add(mine, seq)
        mine.take()
        mine.ack(seq)
    assert mine.held() == [(7, 11)]


def test_events_that_the_sender_must_have_purged_are_forgotten_by_bytes() -> None:
    mine = window(100, bytes_max=35)
    for seq in range(1, 11):
        add(mine, seq)
        mine.take()
        mine.ack(seq)
    assert mine.held() == [(8, 11)]
    assert mine.bytes_kept <= 35


def test_lost_events_are_taken_as_an_empty_slot_in_their_place() -> None:
    mine = window(200, 100)
    add(mine, 120, 121)
    assert mine.skip(150) == [(101, 120), (122, 151)]
    got = [(slot.start, slot.stop, slot.value) for slot in mine.take()]
    assert got == [(101, 120, None), (120, 121, "e120"), (121, 122, "e121"), (122, 151, None)]
    assert add(mine, 151) == [True]
    assert taken(mine) == [151]


def test_missing_reaches_to_an_announced_seq() -> None:
    mine = window(32)
    add(mine, 1, 2)
    mine.take()
    assert mine.missing() == []
    assert mine.missing(6) == [(3, 6)]


class Model:
    """The window as a dictionary of single seqs."""

    def __init__(self, capacity: int, offset: int) -> None:
        self.capacity = capacity
        self.acked = self.delivered = self.high = offset
        self.got: dict[int, str] = {}

    def add(self, start: int, stop: int, value: str) -> bool:
        if start < 1 or stop - 1 - self.acked > self.capacity:
            return False
        new = [seq for seq in range(start, stop) if seq > self.delivered and seq not in self.got]
        self.got |= dict.fromkeys(new, value)
        self.high = max([self.high, *new])
        return bool(new)

    def take(self) -> list[tuple[int, str]]:
        out = []
        while self.delivered + 1 in self.got:
            self.delivered += 1
            out.append((self.delivered, self.got.pop(self.delivered)))
        return out


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60), st.integers(1, 9)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("forget"), st.integers(0, 60), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 20), st.integers(0, 20), STEPS)
def test_window_agrees_with_a_dictionary_of_single_seqs(
    capacity: int, offset: int, steps: list[tuple[str, int, int]]
) -> None:
    mine, model = window(capacity, offset), Model(capacity, offset)
    for number, (what, seq, count) in enumerate(steps):
        if what == "add":
            assert mine.add(seq, seq + count, str(number), count) == model.add(seq, seq + count, str(number))
        elif what == "take":
            slots = mine.take()
            assert [(s, slot.value) for slot in slots for s in range(slot.start, slot.stop)] == model.take()
        elif what == "ack":
            mine.ack(seq)
            model.acked = max(model.acked, min(seq, model.delivered))
        else:
            mine.forget(seq)
        assert (mine.acked, mine.delivered, mine.high) == (model.acked, model.delivered, model.high)
        gaps = [s for a, b in mine.missing() for s in range(a, b)]
        assert gaps == [s for s in range(model.delivered + 1, model.high + 1) if s not in model.got]
        assert mine.forgotten <= mine.acked <= mine.delivered <= mine.high <= mine.acked + capacity
        assert mine.bytes_kept >= mine.bytes >= 0


def test_events_given_up_are_an_empty_slot_whether_they_were_held_or_not() -> None:
    window = Window[str](capacity=20)
    window.add(1, 3, "a", 10)
    window.take()
    window.add(5, 9, "b", 10)
    window.lose(1, 7)
    assert (window.bytes, window.missing()) == (20, [])
    assert [(slot.start, slot.stop, slot.value) for slot in window.take()] == [(3, 7, None), (7, 9, "b")]
    assert [slot.start for slot in window.find(3, 9)] == [7]


def test_a_batch_is_forgotten_as_a_whole() -> None:
    window = Window[str](capacity=20)
    window.add(1, 5, "a", 10)
    window.add(5, 9, "b", 10)
    window.take()
    window.ack(8)
    window.forget(6)
    assert (window.forgotten, window.held()) == (8, [])

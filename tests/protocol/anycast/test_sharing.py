"""Bursts are shared as if each event had chosen its path."""

from hypothesis import given
from hypothesis import strategies as st

from reknit.protocol.anycast.sharing import shares


def one_by_one(loads: list[int], rooms: list[int], count: int) -> list[int]:
    """The slow way: each event takes the path with the lowest load that has room; the first on a tie."""
    found = [0] * len(loads)
    for _ in range(count):
        free = [place for place in range(len(loads)) if found[place] < rooms[place]]
        if not free:
            break
        found[min(free, key=lambda place: loads[place] + found[place])] += 1
    return found


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=6), st.integers(1, 80)
)
def test_a_burst_is_shared_as_if_each_event_chose_for_itself(
    paths: list[tuple[int, int]], count: int
) -> None:
    loads, rooms = [load for load, _ in paths], [room for _, room in paths]
    assert shares(loads, rooms, count) == one_by_one(loads, rooms, count)

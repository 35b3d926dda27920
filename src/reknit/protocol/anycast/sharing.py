"""How events are shared among paths: as if each event had chosen its path, but in ranges.

A burst is shared at once as far as there is room. Of what waits, a path that has room takes a part and comes back for
more, so that all paths are done at about the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from reknit.protocol.anycast.path import Path


def shares(loads: Sequence[int], rooms: Sequence[int], count: int) -> list[int]:
    """How many of `count` events each path gets, if each event goes where the load is lowest; first come on a tie.

    `rooms` bounds what a path takes. If they are too small for all events, each path gets as many as it has room for.

    >>> shares([0, 0], [200, 200], 101)
    [51, 50]
    >>> shares([0, 30, 500], [200, 200, 200], 100)
    [65, 35, 0]
    >>> shares([0, 0], [10, 200], 100)
    [10, 90]
    """
    count = min(count, sum(rooms))
    low, high = min(loads), max(loads) + count
    while low < high:  # the lowest level to which the loads rise
        level = (low + high) // 2
        if sum(_up_to(level, loads, rooms)) >= count:
            high = level
        else:
            low = level + 1
    found = _up_to(low - 1, loads, rooms)
    left = count - sum(found)
    for place, (load, room) in enumerate(zip(loads, rooms, strict=True)):
        if left and load < low and found[place] < room:
            found[place] += 1
            left -= 1
    return found


def _up_to(level: int, loads: Sequence[int], rooms: Sequence[int]) -> list[int]:
    return [max(0, min(room, level - load)) for load, room in zip(loads, rooms, strict=True)]


def portion(path: Path, paths: int, waiting: int) -> int:
    """How much of what waits one of several paths takes, so that it has in hand half of what would be its part.

    It takes more where that keeps it busy. Only paths with a window are bounded: an AMQP receiver names the number of
    events that it takes.
    """
    window = path.credit.window
    if window is None:
        return waiting
    return max(-(-waiting // (2 * paths)), window.busy) - path.unsettled

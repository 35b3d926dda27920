"""Weighted priorities: when events of several priorities wait for one subscriber, each priority gets its share.

The priority that has had the least for its weight is next. While only one waits, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WEIGHTS: Final = (1, 2, 4, 8, 16, 32, 64)
"""CS0 … CS6: while all wait, CS6 gets about half of the deliveries and CS0 a little less than a hundredth."""


def weight(priority: int) -> int:
    """The weight of a priority; priorities beyond CS6 count as CS6.

    >>> weight(0), weight(6), weight(200)
    (1, 64, 64)
    """
    return WEIGHTS[min(priority, len(WEIGHTS) - 1)]


class PriorityShares:
    """The bytes that each priority of one queue has had so far, and which priority is next.

    >>> shares = PriorityShares()
    >>> order = []
    >>> for _ in range(130):
    ...     order.append(shares.next([0, 6]))
    ...     shares.had(order[-1], 1000)
    >>> order.count(0), order.count(6)
    (2, 128)
    """

    def __init__(self) -> None:
        self._had: dict[int, float] = {}

    def next(self, priorities: Sequence[int]) -> int:
        """The priority that is next among those that wait."""
        if len(priorities) == 1:
            self._had.clear()
            return priorities[0]
        least = min((self._had[one] for one in priorities if one in self._had), default=0.0)
        for one in priorities:  # a priority that starts to wait has no claim to what others had before
            self._had[one] = max(self._had.get(one, least), least)
        return min(priorities, key=lambda one: (self._had[one], -one))

    def had(self, priority: int, size: float) -> None:
        """`size` bytes of a priority were delivered."""
        if self._had:
            self._had[priority] = self._had.get(priority, 0.0) + max(size, 1.0) / weight(priority)

"""Weighted priorities: when several wait for one subscriber, each gets its share, and none gets all.

The one that has had the least for its weight is next. Where only one priority waits nothing is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WEIGHTS: Final = (1, 2, 4, 8, 16, 32, 64)
"""CS0 … CS6: of what goes out while all wait, CS6 gets about half and CS0 somewhat less than a hundredth."""


def weight(priority: int) -> int:
    """The share of a priority; what is beyond CS6 is CS6.

    >>> weight(0), weight(6), weight(200)
    (1, 64, 64)
    """
    return WEIGHTS[min(priority, len(WEIGHTS) - 1)]


class Shares:
    """What each priority has had.

    >>> shares = Shares()
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
        """Whose turn it is among those that wait."""
        if len(priorities) == 1:
            self._had.clear()
            return priorities[0]
        least = min((self._had[one] for one in priorities if one in self._had), default=0.0)
        for one in priorities:  # who comes anew has no claim to what others had before
            self._had[one] = max(self._had.get(one, least), least)
        return min(priorities, key=lambda one: (self._had[one], -one))

    def had(self, priority: int, size: float) -> None:
        """So many bytes of a priority went out."""
        if self._had:
            self._had[priority] = self._had.get(priority, 0.0) + max(size, 1.0) / weight(priority)

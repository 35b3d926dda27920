"""Leases: how long a subscriber may hold events without settling or extending them, and how many it prefetches.

Leases end in the order in which events were delivered, so a line of ranges is enough; only extended leases are kept
by event. The window (how many events the subscriber may hold) doubles while a window's worth is settled within half a
lease, and halves when a lease is lost: a subscriber prefetches what its lease can cover.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from reknit.ledger import Series

WINDOW_FIRST: Final = 16
WINDOW_MAX: Final = 1 << 20


class Lease(NamedTuple):
    """Events `[start, stop)` are with the subscriber for the `attempt`-th time, until `until`."""

    until: float
    series: Series
    start: int
    stop: int
    attempt: int


class Leases:
    """The leases of one queue.

    >>> leases = Leases(10.0)
    >>> leases.begin(0.0, ("a", b"s"), 1, 4, 1)
    >>> leases.extend(8.0, ("a", b"s"), 2, 3)
    >>> [(lease.start, lease.stop) for lease in leases.due(10.0)], leases.is_extended(("a", b"s"), 2, 10.0)
    ([(1, 4)], True)
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self.window = WINDOW_FIRST
        """How many events the subscriber may have at a time."""
        self._line: deque[Lease] = deque()
        self._extended: dict[tuple[Series, int], float] = {}
        self._settled = 0
        self._since = 0.0

    def begin(self, now: float, series: Series, start: int, stop: int, attempt: int) -> None:
        """Events go to the subscriber."""
        self._line.append(Lease(now + self.lease_s, series, start, stop, attempt))

    def extend(self, now: float, series: Series, start: int, stop: int) -> None:
        """The subscriber still processes these."""
        for seq in range(start, stop):
            self._extended[series, seq] = now + self.lease_s
        self._line.append(Lease(now + self.lease_s, series, start, stop, 0))

    @property
    def has_extended(self) -> bool:
        return bool(self._extended)

    def is_extended(self, series: Series, seq: int, now: float) -> bool:
        until = self._extended.get((series, seq))
        if until is not None and until <= now:
            del self._extended[series, seq]
        return until is not None and until > now

    def due(self, now: float) -> list[Lease]:
        """The leases that ended: their time has passed since delivery or extension."""
        found: list[Lease] = []
        while self._line and self._line[0].until <= now:
            found.append(self._line.popleft())
        return found

    def next_due(self) -> float | None:
        return self._line[0].until if self._line else None

    def settled(self, now: float, count: int) -> None:
        """`count` events were settled in time: a window's worth in half a lease doubles the window."""
        self._settled += count
        if self._settled >= self.window:
            if now - self._since <= self.lease_s / 2:
                self.window = min(2 * self.window, WINDOW_MAX)
            self._settled, self._since = 0, now

    def lost(self, now: float) -> None:
        """A lease was lost: halve the window."""
        self.window = max(self.window // 2, 1)
        self._settled, self._since = 0, now

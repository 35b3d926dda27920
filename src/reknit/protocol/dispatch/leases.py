"""Leases: how long a subscriber may hold events without a word, and how many it gets ahead.

Events are handed out in the order in which their leases end, so a line of ranges is enough; only where a lease was
extended is an event known by itself. How many are handed out ahead grows while they come back in half the time of a
lease, and is halved when a lease is lost: what is handed out ahead is what the lease can cover.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from reknit.ledger import Stream

WINDOW_FIRST: Final = 16
WINDOW_MAX: Final = 1 << 20


class Held(NamedTuple):
    """Events `[start, stop)` are with the subscriber for the `attempt`-th time, until `until`."""

    until: float
    stream: Stream
    start: int
    stop: int
    attempt: int


class Leases:
    """The leases of one queue.

    >>> leases = Leases(10.0)
    >>> leases.note(0.0, ("a", b"s"), 1, 4, 1)
    >>> leases.extend(8.0, ("a", b"s"), 2, 3)
    >>> [(held.start, held.stop) for held in leases.due(10.0)], leases.is_extended(("a", b"s"), 2, 10.0)
    ([(1, 4)], True)
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self.window = WINDOW_FIRST
        """How many events the subscriber may have at a time."""
        self._line: deque[Held] = deque()
        self._extended: dict[tuple[Stream, int], float] = {}
        self._settled = 0
        self._since = 0.0

    def note(self, now: float, stream: Stream, start: int, stop: int, attempt: int) -> None:
        """Events go to the subscriber."""
        self._line.append(Held(now + self.lease_s, stream, start, stop, attempt))

    def extend(self, now: float, stream: Stream, start: int, stop: int) -> None:
        """The subscriber is still at it."""
        for seq in range(start, stop):
            self._extended[stream, seq] = now + self.lease_s
        self._line.append(Held(now + self.lease_s, stream, start, stop, 0))

    @property
    def has_extended(self) -> bool:
        return bool(self._extended)

    def is_extended(self, stream: Stream, seq: int, now: float) -> bool:
        until = self._extended.get((stream, seq))
        if until is not None and until <= now:
            del self._extended[stream, seq]
        return until is not None and until > now

    def due(self, now: float) -> list[Held]:
        """What has been held for a lease's time since it was handed out or extended."""
        found: list[Held] = []
        while self._line and self._line[0].until <= now:
            found.append(self._line.popleft())
        return found

    def next_due(self) -> float | None:
        return self._line[0].until if self._line else None

    def settled(self, now: float, count: int) -> None:
        """So many events came back in time: if a window's worth did in half a lease, there may be more ahead."""
        self._settled += count
        if self._settled >= self.window:
            if now - self._since <= self.lease_s / 2:
                self.window = min(2 * self.window, WINDOW_MAX)
            self._settled, self._since = 0, now

    def lost(self, now: float) -> None:
        """A lease was lost: fewer ahead."""
        self.window = max(self.window // 2, 1)
        self._settled, self._since = 0, now

"""How many events a path may have in hand, if nobody says: about as many as it settles in a fifth of a second.

So a slow subscriber holds few events, and others get the rest. The speed of a path is measured while it has something to
settle. To that comes what it settles while a message goes there and back: otherwise a path with a longer way would seem
slow because it gets few events, and get fewer for that.

A subscriber may also gather events and settle them together. If events wait and a path that is full settles nothing for
a while, it gets twice as many, and from then on never fewer.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 16
"""What a path gets before it has settled anything."""
FIRST_LINK: Final = 128
"""The same of a neighbour, which may have several subscribers."""
LEAST: Final = 2
"""One to work on, and one that is there when it is done."""
HELD_S: Final = 0.2
"""A path gets as many events as it settles in this time."""
TRIP_S_MAX: Final = 1.0
"""A way there and back takes no longer. What takes longer is work."""
BUSY_SHARE: Final = 100
"""This part of a window keeps its path busy until more events come: those of 2 ms."""
PERIOD_S: Final = 0.005
"""How long is measured, at least, unless everything is settled before. A long way is measured once there and back."""
PATIENCE_S: Final = 1.0


class Window:
    """The window of one path.

    >>> window = Window()
    >>> window.sent(0.0)
    >>> for number in range(1, 4):
    ...     window.settled(1, now=0.02 * number, left=9)  # 20 ms an event
    >>> window.size
    11
    """

    __slots__ = ("_began", "_gap_s", "_last", "_least", "_probed", "_rate", "_settled", "_trip_s", "size")

    def __init__(self, first: int = FIRST) -> None:
        self.size = first
        self._least = LEAST
        self._rate: float | None = None
        """In events a second."""
        self._began: float | None = None
        """When the measurement began; None while the path has nothing to settle."""
        self._settled = 0
        self._probed: float | None = None
        """When events were sent while it had none, until the first of them is settled."""
        self._trip_s = 0.0
        """The shortest time that this took; 0 before the first."""
        self._last = 0.0
        """When something was settled last, or sent after everything was settled."""
        self._gap_s = 0.0
        """The time between that and the settlement before."""

    @property
    def busy(self) -> int:
        """How many events keep the path busy until it gets more."""
        return max(LEAST, self.size // BUSY_SHARE)

    def sent(self, now: float) -> None:
        """Events went along the path."""
        if self._began is None:
            self._began = self._last = self._probed = now

    def settled(self, count: int, now: float, left: int) -> None:
        """The path settled events; it has so many others."""
        began = now if self._began is None else self._began
        self._settled += count
        self._gap_s, self._last = now - self._last, now
        if self._measure_trip(now) and left:
            self._began, self._settled = now, 0  # the speed is that of what follows, without the way
            return
        if now - began < max(PERIOD_S, self._trip_s) and left:
            return
        rate = self._settled / max(now - began, 1e-6)
        self._rate = rate if self._rate is None else (self._rate + rate) / 2
        self._trip_s = min(self._trip_s, max(self.size, count + left) / self._rate)  # no event stays longer
        self.size = max(self._least, int(self._rate * (HELD_S + self._trip_s)))
        self._began, self._settled = (now if left else None), 0

    def _measure_trip(self, now: float) -> bool:
        """Only a path that had nothing settles its first event without a delay. A way that became longer is noticed when
        there are so few events that none of them waits for others. True if this was the first event."""
        if self._probed is None:
            return False
        took_s, self._probed = min(now - self._probed, TRIP_S_MAX), None
        if not self._trip_s or took_s < self._trip_s or self.size <= LEAST:
            self._trip_s = took_s
        return True

    @property
    def patient_until(self) -> float:
        """Until when a path as slow as this one need not settle anything."""
        return self._last + max(PATIENCE_S, 2 * self._gap_s)

    def grow(self, now: float) -> None:
        """Events wait: grow, unless something was settled lately."""
        if now >= self.patient_until:
            self.size = self._least = 2 * self.size

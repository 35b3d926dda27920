"""How many events a path may have in hand, if nobody says: about as many as it settles in a fifth of a second.

So a slow subscriber holds few events, and others get the rest. The speed of a path is measured while it has something to
settle.

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
BUSY_SHARE: Final = 100
"""This part of a window keeps its path busy until more events come: those of 2 ms."""
PERIOD_S: Final = 0.005
"""How long is measured, at least, unless everything is settled before."""
PATIENCE_S: Final = 1.0


class Window:
    """The window of one path.

    >>> window = Window()
    >>> window.sent(0.0)
    >>> window.settled(1, now=0.02, is_idle=False)  # 20 ms an event
    >>> window.size
    10
    """

    __slots__ = ("_began", "_gap_s", "_last", "_least", "_rate", "_settled", "size")

    def __init__(self, first: int = FIRST) -> None:
        self.size = first
        self._least = LEAST
        self._rate: float | None = None
        """In events a second."""
        self._began: float | None = None
        """When the measurement began; None while the path has nothing to settle."""
        self._settled = 0
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
            self._began = self._last = now

    def settled(self, count: int, now: float, is_idle: bool) -> None:
        """The path settled events; `is_idle`: all that it had."""
        began = now if self._began is None else self._began
        self._settled += count
        self._gap_s, self._last = now - self._last, now
        if now - began < PERIOD_S and not is_idle:
            return
        rate = self._settled / max(now - began, 1e-6)
        self._rate = rate if self._rate is None else (self._rate + rate) / 2
        self.size = max(self._least, int(self._rate * HELD_S))
        self._began, self._settled = (None if is_idle else now), 0

    @property
    def patient_until(self) -> float:
        """Until when a path as slow as this one need not settle anything."""
        return self._last + max(PATIENCE_S, 2 * self._gap_s)

    def grow(self, now: float) -> None:
        """Events wait: grow, unless something was settled lately."""
        if now >= self.patient_until:
            self.size = self._least = 2 * self.size

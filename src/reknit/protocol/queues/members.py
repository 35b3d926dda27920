"""The members of a queue: subscriptions that share its events. Each event is with one of them at a time."""

from __future__ import annotations

from collections.abc import Callable

from reknit.ledger import Series
from reknit.protocol.anycast.window import Window
from reknit.protocol.machine import Peer
from reknit.protocol.queues.credit import SubscriberCredit
from reknit.protocol.series_seqs import SeriesSeqs
from reknit.seqset import Range

SizeOf = Callable[[Range], float]
"""The bytes of a range of events."""


class Member:
    """One member: what it holds, and how much more it takes. Only `SharedQueue` and its settlement change it.

    >>> member = Member("p", 1, credit=1000, bytes_max=500.0)
    >>> member.take(("jobs/a", b"s"), 1, 11, size=100.0, now=0.0)
    >>> member.events, member.events_room, member.bytes_room
    (10, 6, 400)
    >>> member.drop(("jobs/a", b"s"), 9, 20, size_of=lambda bounds: 20.0, now=0.1), member.events
    (2, 8)
    """

    __slots__ = (
        "_bytes_max", "bytes", "credit", "events", "has_strays", "held", "is_suspect", "peer", "settled_number",
        "sub", "turn", "window",
    )  # fmt: skip

    def __init__(self, peer: Peer, sub: int, credit: int, bytes_max: float) -> None:
        self.peer = peer
        self.sub = sub
        self.credit = SubscriberCredit(credit)
        self.window = Window()
        """How many events it may hold: about as many as it settles in a fifth of a second."""
        self.held = SeriesSeqs()
        self.events = 0
        """How many events it holds."""
        self.bytes = 0.0
        self.is_suspect = False
        """Whether it lost a lease and has settled nothing since: it gets one event at a time."""
        self.has_strays = False
        """Whether it may still process events that were taken from it."""
        self.settled_number = 0
        """The number of its last `Settle` that was applied."""
        self.turn = 0
        """When it was served last, as a count: among equals, the one that waits for longest is next."""
        self._bytes_max = bytes_max

    @property
    def key(self) -> tuple[Peer, int]:
        return self.peer, self.sub

    @property
    def bytes_room(self) -> int:
        """How many bytes it still takes: within its credit, and before it settles what it has."""
        return int(min(self.credit.room, self._bytes_max - self.bytes))

    @property
    def events_room(self) -> int:
        """How many events it still takes."""
        size = 1 if self.is_suspect else self.window.size
        return max(size - self.events, 0) if self.bytes_room > 0 else 0

    @property
    def is_full(self) -> bool:
        """Whether it has as many events as its window allows."""
        return self.events >= self.window.size

    def take(self, series: Series, start: int, stop: int, size: float, now: float) -> None:
        """Events go to this member."""
        self.held.add(series, start, stop)
        self.events += stop - start
        self.bytes += size
        self.window.sent(now)

    def drop(self, series: Series, start: int, stop: int, size_of: SizeOf, now: float) -> int:
        """Events of `[start, stop)` are no longer with this member; returns how many of them it held."""
        ranges = self.held.take(series, start, stop)
        if not ranges:
            return 0
        count = sum(high - low for low, high in ranges)
        self.events -= count
        self.bytes = self.bytes - sum(map(size_of, ranges)) if self.events else 0.0
        self.window.settled(count, now, self.events)
        return count

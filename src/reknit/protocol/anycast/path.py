"""One path: a subscriber of this node or a neighbour, its credit, and the deliveries that it has not settled."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from reknit.ledger import Series
from reknit.protocol.anycast.delivery import AnycastDelivery
from reknit.protocol.anycast.window import Window
from reknit.protocol.machine import Peer
from reknit.topic import Pattern

CreditUnit = Literal["bytes", "events", "unsettled"]
UNLIMITED = 1 << 62


@dataclass(slots=True, eq=False)
class CreditBalance:
    """How much a path takes: bytes or events in total since it was attached, or events that are unsettled at a time."""

    unit: CreditUnit
    granted: int = 0
    unsettled_bytes_max: int = UNLIMITED
    window: Window | None = None
    """Bounds the events that are unsettled, where the other side did not name a number and others could take them."""
    used: int = 0
    is_blocked: bool = False
    """The connection is full."""

    def left(self, unsettled: int, unsettled_bytes: int, is_balanced: bool) -> int:
        """How many events the path takes now, at most. Where bytes count: any number while some credit is left."""
        if self.is_blocked or unsettled_bytes >= self.unsettled_bytes_max:
            return 0
        left = self.granted - (unsettled if self.unit == "unsettled" else self.used)
        if self.unit == "bytes" and left > 0:
            left = UNLIMITED
        if is_balanced and self.window is not None:
            left = min(left, self.window.size - unsettled)
        return max(0, left)

    def grant(self, total: int) -> bool:
        """Set the total since the path was attached. True if it changed."""
        is_new = total != self.granted
        self.granted = total
        return is_new

    def block(self, is_blocked: bool) -> None:
        """The connection is full, or has room again."""
        self.is_blocked = is_blocked

    def use(self, delivery: AnycastDelivery) -> None:
        """A delivery was sent."""
        self.used += delivery.size if self.unit == "bytes" else delivery.count


class UnsettledDeliveries:
    """The deliveries that were sent along one path and are not settled, by series and in seq order.

    Two of them may have the same events: a neighbour that was lost, or another one, sent them again. The subscriber
    settles both at once, as it knows an event by its id.
    """

    __slots__ = ("_overlapping", "_sent", "bytes", "events")

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self._sent: dict[Series, list[AnycastDelivery]] = {}
        self._overlapping: set[Series] = set()
        """Series of which two deliveries have the same events."""

    def __iter__(self) -> Iterator[AnycastDelivery]:
        return (delivery for sent in self._sent.values() for delivery in sent)

    def add(self, delivery: AnycastDelivery) -> None:
        """It is unsettled."""
        self.events += delivery.stop - delivery.start
        self.bytes += delivery.size
        series = (delivery.terms.topic, delivery.terms.source)
        sent = self._sent.get(series)
        if sent is None:
            self._sent[series] = [delivery]
        elif not sent or sent[-1].stop <= delivery.start:
            sent.append(delivery)
        else:
            at = bisect_left(sent, delivery.start, key=_start)
            sent.insert(at, delivery)
            is_cut = at + 1 < len(sent) and sent[at + 1].start < delivery.stop
            if is_cut or (at and sent[at - 1].stop > delivery.start):
                self._overlapping.add(series)

    def take(self, series: Series, start: int, stop: int) -> list[AnycastDelivery]:
        """Remove and return what of `[start, stop)` is unsettled. Deliveries that reach beyond it are split."""
        sent = self._sent.get(series)
        if not sent:
            return []
        taken = (_take_each if series in self._overlapping else _take_run)(sent, start, stop)
        if not sent:
            del self._sent[series]
            self._overlapping.discard(series)
        for delivery in taken:
            self.events -= delivery.stop - delivery.start
            self.bytes -= delivery.size
        return taken

    def take_all(self) -> list[AnycastDelivery]:
        """Remove and return everything, in order."""
        taken = list(self)
        self._sent.clear()
        self._overlapping.clear()
        self.events = self.bytes = 0
        return taken


def _take_run(sent: list[AnycastDelivery], start: int, stop: int) -> list[AnycastDelivery]:
    """Take `[start, stop)` out of deliveries that are in order and do not overlap."""
    low = bisect_left(sent, start, key=_start)
    if low and sent[low - 1].stop > start:
        sent.insert(low, sent[low - 1].split(start))
    high = low
    while high < len(sent) and sent[high].start < stop:
        if sent[high].stop > stop:
            sent.insert(high + 1, sent[high].split(stop))
        high += 1
    taken = sent[low:high]
    del sent[low:high]
    return taken


def _take_each(sent: list[AnycastDelivery], start: int, stop: int) -> list[AnycastDelivery]:
    """The same for deliveries that overlap, which is rare."""
    taken: list[AnycastDelivery] = []
    kept: list[AnycastDelivery] = []
    for delivery in sent:
        rest = [delivery]
        taken += _take_run(rest, start, stop)
        kept += rest
    sent[:] = sorted(kept, key=_start)
    return taken


def _start(delivery: AnycastDelivery) -> int:
    return delivery.start


@dataclass(slots=True, eq=False)
class Path:
    """A subscriber of this node, or a neighbour. Iterating gives the deliveries that it has not settled."""

    id: int
    key: Peer
    name: str
    is_neighbour: bool
    credit: CreditBalance
    pattern: Pattern | None = None
    takes_streams: bool = False
    last_used: int = 0
    """The number of the latest delivery along it: a higher one is more recent."""
    _backlog: deque[AnycastDelivery] = field(default_factory=deque)
    """Copies of multicast events that wait for room on just this path."""
    _sent: UnsettledDeliveries = field(default_factory=UnsettledDeliveries)

    @property
    def unsettled(self) -> int:
        """How many events it has and has not settled."""
        return self._sent.events

    def __iter__(self) -> Iterator[AnycastDelivery]:
        return iter(self._sent)

    def room(self, is_balanced: bool = False) -> int:
        """How many events it takes now, at most; 0 if it is full."""
        return self.credit.left(self._sent.events, self._sent.bytes, is_balanced)

    def send(self, delivery: AnycastDelivery, number: int) -> None:
        """A delivery goes along it; numbers only rise."""
        self.last_used = number
        self.credit.use(delivery)
        self._sent.add(delivery)
        if self.credit.window is not None:
            self.credit.window.sent(delivery.sent_at)

    def settled(self, count: int, now: float) -> None:
        """It settled so many events."""
        if count and self.credit.window is not None:
            self.credit.window.settled(count, now, self._sent.events)

    def take(self, series: Series, start: int, stop: int) -> list[AnycastDelivery]:
        """Remove and return what of `[start, stop)` is unsettled. Deliveries that reach beyond it are split."""
        return self._sent.take(series, start, stop)

    def put_back(self, delivery: AnycastDelivery) -> None:
        """A delivery that was taken is not settled after all."""
        self._sent.add(delivery)

    def take_all(self) -> list[AnycastDelivery]:
        """Remove and return everything that is unsettled, in order."""
        return self._sent.take_all()

    # -- copies of multicast events

    @property
    def backlog(self) -> int:
        """How many copies wait for room on it."""
        return len(self._backlog)

    def queue(self, copy: AnycastDelivery) -> None:
        """A copy waits for room, after those that came before."""
        copy.wait()
        self._backlog.append(copy)

    def next_copy(self) -> AnycastDelivery | None:
        """The copy to send next if there is room; cut to what fits."""
        if not self._backlog or self.room() <= 0:
            return None
        copy = self._backlog.popleft()
        if (count := self.room()) < copy.count:
            self._backlog.appendleft(copy.split(copy.start + count))
        copy.select_again()
        return copy

    def take_backlog(self) -> list[AnycastDelivery]:
        """Remove and return the copies that were not sent."""
        backlog = list(self._backlog)
        self._backlog.clear()
        return backlog

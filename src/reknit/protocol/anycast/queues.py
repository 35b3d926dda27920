"""Deliveries that wait: for room on a path, for another attempt, or for their deadline."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from reknit.backoff import Backoff
from reknit.protocol.anycast.delivery import AnycastDelivery

STALE_MIN: Final = 64
"""At least this many ended deliveries may stay in the heap of deadlines."""


class RoomQueue:
    """Deliveries of one topic that wait for room, in order. Those that ended meanwhile are still in it."""

    __slots__ = ("_deliveries", "events")

    def __init__(self) -> None:
        self._deliveries: deque[AnycastDelivery] = deque()
        self.events = 0
        """How many events wait, at most."""

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def __iter__(self) -> Iterator[AnycastDelivery]:
        return (delivery for delivery in self._deliveries if delivery.is_waiting)

    def put(self, delivery: AnycastDelivery, is_first: bool) -> None:
        """It waits behind all others, or before them."""
        self.events += delivery.count
        if is_first:
            self._deliveries.appendleft(delivery)
        else:
            self._deliveries.append(delivery)

    def take(self) -> AnycastDelivery:
        """Remove and return the first."""
        delivery = self._deliveries.popleft()
        self.events -= delivery.count
        return delivery


Queues = dict[str, RoomQueue]
"""By topic."""


class RoomQueues:
    """Deliveries that wait for room, by topic."""

    def __init__(self) -> None:
        self.events: Queues = {}
        self.streams: Queues = {}
        """Apart, because not every path takes streams: nothing else waits behind them."""

    def add(self, delivery: AnycastDelivery, has_waited: bool) -> None:
        """Queue it. The rest of a delivery that has waited goes first, so that the order stays."""
        delivery.wait()
        queues = self.streams if delivery.terms.is_stream else self.events
        queues.setdefault(delivery.topic, RoomQueue()).put(delivery, is_first=has_waited)

    def __iter__(self) -> Iterator[AnycastDelivery]:
        for queues in (self.events, self.streams):
            for queue in queues.values():
                yield from queue


class ParkedDeliveries:
    """Deliveries that everybody released: tried again after a back-off, or when a subscriber comes."""

    def __init__(self, backoff: Backoff, rng: Random) -> None:
        self._backoff = backoff
        self._rng = rng
        self._heap: list[tuple[float, int, AnycastDelivery]] = []
        self._pushed = 0
        self._without_path: dict[str, list[AnycastDelivery]] = {}
        """Those for which there was no path at all, by topic."""
        self.count = 0

    def add(self, delivery: AnycastDelivery, now: float) -> None:
        """Try it again after a back-off."""
        self._park(delivery)
        self._pushed += 1
        due = now + self._rng.uniform(0.0, self._backoff.ceiling_s(delivery.rounds))
        heapq.heappush(self._heap, (due, self._pushed, delivery))

    def add_without_path(self, delivery: AnycastDelivery) -> None:
        """Try it again when a subscriber comes: there is none."""
        self._park(delivery)
        self._without_path.setdefault(delivery.topic, []).append(delivery)

    def _park(self, delivery: AnycastDelivery) -> None:
        delivery.park()
        self.count += 1

    def removed(self) -> None:
        """One of them is tried again, or has ended."""
        self.count -= 1

    def due(self, now: float) -> Iterator[AnycastDelivery]:
        """Those whose back-off is over."""
        while self._heap and self._heap[0][0] <= now:
            delivery = heapq.heappop(self._heap)[2]
            if delivery.is_parked:
                yield delivery

    def with_new_path(self, has_path: Callable[[str], bool]) -> Iterator[AnycastDelivery]:
        """Those that had no path, and have one now."""
        for topic in [topic for topic in self._without_path if has_path(topic)]:
            yield from (delivery for delivery in self._without_path.pop(topic) if delivery.is_parked)

    def next_deadline(self) -> float | None:
        """When the next back-off is over."""
        while self._heap and not self._heap[0][2].is_parked:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Deadlines:
    """When deliveries with a ttl expire, unless they end before."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, AnycastDelivery]] = []
        self._pushed = 0
        self._stale = 0
        """How many in the heap have ended. They are removed before they are more than half of it."""

    def add(self, deadline: float, delivery: AnycastDelivery) -> None:
        """Let a delivery expire at its deadline."""
        self._pushed += 1
        heapq.heappush(self._heap, (deadline, self._pushed, delivery))

    def ended(self) -> None:
        """A delivery ended before its deadline: its events must not stay in memory until then."""
        self._stale += 1
        if self._stale > STALE_MIN and 2 * self._stale > len(self._heap):
            self._heap = [row for row in self._heap if not row[2].is_ended]
            heapq.heapify(self._heap)
            self._stale = 0

    def due(self, now: float) -> Iterator[AnycastDelivery]:
        """Those that expire now. One that a path has does not: its subscriber may still process it."""
        while self._heap and self._heap[0][0] <= now:
            delivery = heapq.heappop(self._heap)[2]
            if delivery.may_expire:
                yield delivery

    def next_deadline(self) -> float | None:
        """When the next one expires."""
        while self._heap and self._heap[0][2].is_ended:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

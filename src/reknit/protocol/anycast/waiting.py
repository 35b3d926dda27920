"""Deliveries that wait: for room on a path, for another try, or for the time at which they end."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from reknit.protocol.anycast.state import Delivery
from reknit.protocol.dispatch.retry import Retry

STALE_MIN: Final = 64

Queues = dict[str, deque[Delivery]]


class Waiting:
    """For room, by topic and in order. Those that ended meanwhile are passed over."""

    def __init__(self) -> None:
        self.events: Queues = {}
        self.streams: Queues = {}
        """Apart, since not everyone takes them: nothing else waits behind them."""

    def add(self, delivery: Delivery, has_waited: bool) -> None:
        """Wait: the rest of what has waited before all that came later, so that order stays."""
        delivery.is_waiting = True
        queues = self.streams if delivery.is_stream else self.events
        queue = queues.setdefault(delivery.topic, deque())
        if has_waited:
            queue.appendleft(delivery)
        else:
            queue.append(delivery)

    def __iter__(self) -> Iterator[Delivery]:
        for queues in (self.events, self.streams):
            for queue in queues.values():
                yield from (delivery for delivery in queue if delivery.is_waiting)


class Parked:
    """For another try, of what everybody released: after a while, or when somebody comes. The journal has them."""

    def __init__(self, retry: Retry, rng: Random) -> None:
        self._retry = retry
        self._rng = rng
        self.heap: list[tuple[float, int, Delivery]] = []
        self._pushed = 0
        self._nobody: dict[str, list[Delivery]] = {}
        """Those for which there was no path at all, by topic."""
        self.count = 0

    def add(self, delivery: Delivery, now: float, is_nobody: bool) -> None:
        """Try it again later."""
        delivery.rounds += 1
        delivery.path, delivery.batch, delivery.is_parked = None, None, True
        self.count += 1
        if is_nobody:
            self._nobody.setdefault(delivery.topic, []).append(delivery)
            return
        self._pushed += 1
        due = now + self._retry.delay_s(delivery.rounds, self._rng)
        heapq.heappush(self.heap, (due, self._pushed, delivery))

    def remove(self, delivery: Delivery) -> None:
        """It is tried again, or has ended."""
        delivery.is_parked = False
        self.count -= 1

    def due(self, now: float) -> Iterator[Delivery]:
        """Those whose while is over."""
        while self.heap and self.heap[0][0] <= now:
            delivery = heapq.heappop(self.heap)[2]
            if delivery.is_parked:
                yield delivery

    def awaited(self, has_path: Callable[[str], bool]) -> Iterator[Delivery]:
        """Those that somebody is there for by now."""
        for topic in [topic for topic in self._nobody if has_path(topic)]:
            yield from (delivery for delivery in self._nobody.pop(topic) if delivery.is_parked)

    def next_deadline(self) -> float | None:
        """When the next one is due."""
        while self.heap and not self.heap[0][2].is_parked:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else None


class Deadlines:
    """When deliveries with a ttl end, unless they have ended before."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Delivery]] = []
        self._pushed = 0
        self._stale = 0
        """How many of those have ended since; they are cleared away before they are the most of it."""

    def add(self, deadline: float, delivery: Delivery) -> None:
        """It ends then."""
        self._pushed += 1
        heapq.heappush(self.heap, (deadline, self._pushed, delivery))

    def ended(self) -> None:
        """One that had a deadline has ended long before it: what it carries is not held until then."""
        self._stale += 1
        if self._stale > STALE_MIN and 2 * self._stale > len(self.heap):
            self.heap = [row for row in self.heap if not row[2].is_done]
            heapq.heapify(self.heap)
            self._stale = 0

    def due(self, now: float) -> Iterator[Delivery]:
        """Those that are too old, and with nobody who could still process them."""
        while self.heap and self.heap[0][0] <= now:
            delivery = heapq.heappop(self.heap)[2]
            if delivery.path is None and not delivery.is_done and not delivery.is_pinned:
                yield delivery

    def next_deadline(self) -> float | None:
        """When the next one ends."""
        while self.heap and self.heap[0][2].is_done:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else None

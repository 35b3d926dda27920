"""Virtual time: a queue of actions, and a clock that jumps from one to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable

START_US = 1_700_000_000_000_000
"""The time of day at virtual second 0, in microseconds since 1970."""


class Timer:
    """An action that is due at a time, unless it is cancelled before."""

    __slots__ = ("action", "due")

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not run the action."""
        self.action = None


class Clock:
    """Time that advances only when everything that is due has run.

    >>> clock, seen = Clock(), []
    >>> _ = clock.after(2.0, lambda: seen.append("late")), clock.after(1.0, lambda: seen.append("early"))
    >>> clock.run(10.0)
    >>> (seen, clock.now)
    (['early', 'late'], 10.0)
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.steps = 0
        self._queue: list[tuple[float, int, Timer]] = []
        self._order = 0

    def now_us(self) -> int:
        """The virtual time of day, in microseconds since 1970."""
        return START_US + int(self.now * 1e6)

    def at(self, due: float, action: Callable[[], None]) -> Timer:
        """Run an action at a time, or at once if that is past. Actions due at the same time keep their order."""
        timer = Timer(max(due, self.now), action)
        self._order += 1
        heapq.heappush(self._queue, (timer.due, self._order, timer))
        return timer

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run an action after a delay."""
        return self.at(self.now + delay_s, action)

    def next_due(self) -> float | None:
        """When the next action is due. None if there is none."""
        while self._queue and self._queue[0][2].action is None:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def run(self, until: float, is_over: Callable[[], bool] | None = None) -> None:
        """Run everything that is due by a time, or until `is_over`."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            due, _, timer = heapq.heappop(queue)
            if timer.action is None:
                continue
            self.now = due
            self.steps += 1
            timer.action()
            if is_over is not None and is_over():
                return
        self.now = max(self.now, until)

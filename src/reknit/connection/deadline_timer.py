"""One timer for a machine: it fires at the machine's next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

NEVER: Final = float("inf")


class DeadlineTimer:
    """Calls `on_due` at the deadline that was set. Deadlines and `now` are times of one monotonic clock."""

    def __init__(self, on_due: Callable[[], None]) -> None:
        self.at = NEVER
        """When it fires."""
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline: float, now: float) -> None:
        """Fire at the deadline, unless it fires earlier already. A call that is overdue is moved."""
        if deadline < self.at or self.at <= now:
            if self._handle is not None:
                self._handle.cancel()
            self.at = deadline
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(max(0.0, deadline - now), self._fire)

    def cancel(self) -> None:
        """Do not fire."""
        self.at = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self.at = NEVER
        self._handle = None
        self._on_due()

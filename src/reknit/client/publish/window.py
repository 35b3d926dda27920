"""The publishing window: how many bytes may be unacknowledged, and what happens at the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.config import LimitSettings
from reknit.connection.futures import fail_all, resolve_all
from reknit.connection.publish_driver import StoredFuture
from reknit.errors import Full
from reknit.protocol.publish.publisher import SourcePublisher


class PublishWindow:
    """At the limit a publisher waits, or raises `Full` if it was made with `wait=False`.

    Calls whose awaitable nobody awaits are bounded too, by `limits.publish_waiting_max`.
    """

    def __init__(
        self,
        machine: SourcePublisher,
        limits: LimitSettings,
        *,
        waits: bool,
        count_unstored: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._bytes_max = limits.publish_window_bytes
        self._waiting_max = limits.publish_waiting_max
        self._waits = waits
        self._count_unstored = count_unstored
        self._full_at: int | None = None
        """How many events were not stored when the window became full."""
        self._waiters: list[StoredFuture] = []

    def is_full(self, pending_bytes: int) -> bool:
        """Whether the limit is reached, counting events that are not in a batch yet."""
        return self._machine.unacked_bytes + pending_bytes >= self._bytes_max

    def admit(self, pending_bytes: int) -> None:
        """Take one more call. Raises `Full`."""
        if self._machine.unacked_bytes + pending_bytes < self._bytes_max:
            self._full_at = None
            return
        self.check()
        unstored = self._count_unstored()
        if self._full_at is None:
            self._full_at = unstored
        waiting = unstored - self._full_at
        if waiting >= self._waiting_max:
            raise Full(f"{waiting} events wait for room", "limits.publish_waiting_max")

    def check(self) -> None:
        """The window is full. Raises `Full` if the publisher does not wait."""
        if not self._waits:
            text = f"{self._machine.unacked_bytes} bytes are not acknowledged yet"
            raise Full(text, "limits.publish_window_bytes")

    def wait(self) -> StoredFuture:
        """Done when there is room."""
        room: StoredFuture = asyncio.get_running_loop().create_future()
        self._waiters.append(room)
        return room

    def acknowledged(self) -> None:
        """Events were acknowledged: wake everyone who waits, if there is room now."""
        if self._waiters and self._machine.unacked_bytes < self._bytes_max:
            waiters, self._waiters = self._waiters, []
            resolve_all(waiters)

    def fail(self, error: Exception) -> None:
        """Raise the error in everyone who waits."""
        waiters, self._waiters = self._waiters, []
        fail_all(waiters, error)

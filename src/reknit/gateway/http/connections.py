"""The open connections of the HTTP server, and those of them whose next request is not complete."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any, Protocol

from reknit.gateway.access import Access
from reknit.trust.identities import Identity


class OpenHttpConnection(Protocol):
    """A connection, as the registry uses it."""

    opened_at: float
    """Since when the server waits for its next request."""

    @property
    def proof(self) -> Identity:
        """Who the client is."""

    @property
    def waiting_bytes(self) -> int:
        """What was sent to the client and not taken yet."""

    @property
    def is_closing(self) -> bool:
        """Whether it is being closed."""

    def describe(self, now: float) -> dict[str, Any]:
        """Who the client is, since when, and what it holds."""

    def end(self, why: str) -> None:
        """Send the reason, and close."""

    def review(self, access: Access) -> None:
        """The rules have changed."""

    def close(self) -> None:
        """Close when all is sent."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionRegistry:
    """Every open connection once."""

    def __init__(self) -> None:
        self._open: dict[OpenHttpConnection, int] = {}
        """Each with a number that is never used again."""
        self._numbers = itertools.count(1)
        self._reading: dict[OpenHttpConnection, None] = {}
        """Waiting for a complete request, the oldest first."""
        self._full: dict[OpenHttpConnection, None] = {}
        """Their sockets took not all that was sent."""
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def numbered(self) -> list[tuple[int, OpenHttpConnection]]:
        """Every connection with its number."""
        return [(number, one) for one, number in self._open.items()]

    def opened(self, connection: OpenHttpConnection) -> None:
        """A client connected. Its first request is awaited."""
        self._open[connection] = next(self._numbers)
        self._reading[connection] = None
        self._empty.clear()

    def awaits(self, connection: OpenHttpConnection) -> None:
        """The next request of the connection is awaited."""
        self._reading[connection] = None

    def complete(self, connection: OpenHttpConnection) -> None:
        """A request arrived completely."""
        self._reading.pop(connection, None)

    def filled(self, connection: OpenHttpConnection) -> None:
        """The socket of a connection took not all that was sent."""
        self._full[connection] = None

    def full(self) -> list[OpenHttpConnection]:
        """The connections for which something waits. There may be very many others."""
        self._full = {one: None for one in self._full if one.waiting_bytes}
        return list(self._full)

    def closed(self, connection: OpenHttpConnection) -> None:
        """The connection is gone."""
        self._full.pop(connection, None)
        self._open.pop(connection, None)
        self._reading.pop(connection, None)
        if not self._open:
            self._empty.set()

    def close_overdue(self, now: float, timeout_s: float) -> None:
        """Close connections whose request takes longer than `timeout_s` to arrive."""
        for connection in list(self._reading):
            if now - connection.opened_at < timeout_s:
                break  # the others are younger
            connection.close()

    def review(self, access: Access) -> None:
        """The rules have changed: end what they allow no longer."""
        for connection in list(self._open):
            connection.review(access)

    async def end_all(self, why: str, timeout_s: float) -> None:
        """Close all connections with a reason. Abort those that are still open after `timeout_s`."""
        for connection in list(self._open):
            connection.end(why)
        if self._open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)
        for connection in list(self._open):
            connection.abort()

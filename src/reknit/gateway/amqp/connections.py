"""The open AMQP connections, and how they end when the node stops."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class OpenAmqpConnection(Protocol):
    """A connection, as the registry uses it."""

    @property
    def unsettled(self) -> int:
        """Messages of this client without an outcome."""

    def stop(self) -> None:
        """Take no more messages."""

    def end(self, text: str) -> None:
        """Close every link and the connection with a reason."""

    def abort(self) -> None:
        """Close at once."""


C = TypeVar("C", bound=OpenAmqpConnection)


class AmqpConnections(Generic[C]):
    """Every open connection once."""

    def __init__(self) -> None:
        self._open: dict[C, int] = {}
        """Each with a number that is never used again."""
        self._numbers = itertools.count(1)
        self._empty = asyncio.Event()
        self._settled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._open))

    def numbered(self) -> list[tuple[int, C]]:
        """Every connection with its number."""
        return [(number, one) for one, number in self._open.items()]

    def opened(self, connection: C) -> None:
        """A client connected."""
        self._open[connection] = next(self._numbers)
        self._empty.clear()

    def closed(self, connection: C) -> None:
        """A connection is gone."""
        self._open.pop(connection, None)
        self._settled.set()
        if not self._open:
            self._empty.set()

    def settled(self) -> None:
        """Messages have their outcome."""
        self._settled.set()

    async def stop(self, text: str, timeout_s: float) -> None:
        """Wait for outcomes, then close every link with the reason; at most `timeout_s` for each."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settle_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._end_all(text)
        for connection in self:
            connection.abort()

    async def _settle_all(self) -> None:
        for connection in self:
            connection.stop()
        while any(connection.unsettled for connection in self):
            self._settled.clear()
            await self._settled.wait()

    async def _end_all(self, text: str) -> None:
        for connection in self:
            connection.end(text)
        if self._open:
            await self._empty.wait()

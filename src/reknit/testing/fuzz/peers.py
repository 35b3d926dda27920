"""Hostile peers: each takes the steps of one input over a connection of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Protocol, cast

from reknit.testing.fuzz.inputs import ABORT, END, HEAR, OPEN, SAY, Step

HEAR_S: Final = 0.02
"""How long a peer waits for an answer that it may not get."""
END_S: Final = 0.02
OPEN_MAX: Final = 30
"""How many connections stay open, and read nothing."""


class Conversations(Protocol):
    """Hostile peers of one node."""

    async def converse(self, steps: tuple[Step, ...]) -> None:
        """Take the steps of an input."""

    def close(self) -> None:
        """Break all connections."""


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._heard = asyncio.Event()
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        self._heard.set()

    async def take(self, step: Step) -> None:
        """Take a step."""
        match step.do:
            case "say":
                self._heard.clear()
                if not self.transport.is_closing():
                    self.transport.write(step.data)
                await asyncio.sleep(0)  # the node may have closed the connection
            case "hear":
                await self._hear(HEAR_S)
            case "end":
                with suppress(OSError):  # the node may have closed the connection
                    self.transport.write_eof()
                await self._hear(END_S)
                self.transport.abort()
            case "abort":
                self.transport.abort()

    async def _hear(self, seconds: float) -> None:
        handle = asyncio.get_running_loop().call_later(seconds, self._heard.set)
        await self._heard.wait()
        handle.cancel()


class Peers:
    """Peers that take the steps of inputs, to one port. Some connections stay open for a while."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: deque[Peer] = deque()

    async def converse(self, steps: tuple[Step, ...]) -> None:
        """Take the steps on a new connection, until they end or the node closes it."""
        peer = await self._connect()
        for step in steps:
            if step.do == OPEN:
                self._leave(peer)
                peer = await self._connect()
            elif peer is not None and not peer.is_over:
                await peer.take(step)
        self._leave(peer)

    async def _connect(self) -> Peer | None:
        loop = asyncio.get_running_loop()
        try:
            return (await loop.create_connection(Peer, "127.0.0.1", self._port))[1]
        except OSError:
            return None

    def _leave(self, peer: Peer | None) -> None:
        """A connection that is not closed stays open for a while, and nobody reads from it."""
        if peer is not None and not peer.transport.is_closing():
            peer.transport.pause_reading()
            self._open.append(peer)
        if len(self._open) > OPEN_MAX:
            self._open.popleft().transport.abort()

    def close(self) -> None:
        """Break all connections."""
        while self._open:
            self._open.popleft().transport.abort()


assert {SAY, HEAR, END, ABORT} == {"say", "hear", "end", "abort"}, "every step is taken"

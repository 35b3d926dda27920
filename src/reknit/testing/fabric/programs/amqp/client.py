"""An AMQP 1.0 client for simulated programs: proton's engine between a connection and a few callbacks.

Proton can't be built on every machine: import this module only where `is_available()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

IDLE_S: Final = 4.0
"""A connection on which nothing comes for so long, not even a heartbeat, counts as broken."""


def is_available() -> bool:
    """Whether proton is installed."""
    return find_spec("proton") is not None


class AmqpClient(asyncio.Protocol):
    """One connection. `on_event` is called with the name and the object of each of proton's events.

    With a user and a password the client proves who it is; otherwise it is anonymous.
    """

    def __init__(
        self, container: str, on_event: Callable[[str, Any], None], user: str = "", password: str = ""
    ) -> None:
        from proton import Collector, Connection, Transport

        self._on_event = on_event
        self.connection: Any = Connection()
        self.connection.container = container
        self._collector: Any = Collector()
        self.connection.collect(self._collector)
        self._engine: Any = Transport()
        self._engine.idle_timeout = IDLE_S
        self._engine.sasl().allowed_mechs("PLAIN" if user else "ANONYMOUS")
        self._engine.sasl().allow_insecure_mechs = True
        if user:
            self.connection.user, self.connection.password = user, password
        self._engine.bind(self.connection)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is over, with the error."""
        self.is_blocked = False

    # -- for the program

    async def open(self, host: str, port: int) -> Any:
        """Connect. Returns a session. Raises `OSError`."""
        await asyncio.wait_for(self._loop.create_connection(lambda: self, host, port), IDLE_S)
        self.connection.open()
        session = self.connection.session()
        session.open()
        self.turn()
        return session

    def turn(self) -> None:
        """Send what is to be sent, soon."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def abort(self) -> None:
        """Break the connection."""
        self._end("aborted")

    # -- the connection's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._tick()

    def data_received(self, data: bytes) -> None:
        while data and not self.over.done():
            room = self._engine.capacity()
            if room <= 0:
                self._end("the engine takes no more")
                return
            self._engine.push(data[:room])
            data = data[room:]
            self._dispatch()
        self.turn()

    def pause_writing(self) -> None:
        self.is_blocked = True

    def resume_writing(self) -> None:
        self.is_blocked = False
        self.turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"lost: {exc}")

    def _flush(self) -> None:
        self._is_due = False
        self._dispatch()
        while not self.over.done() and (size := self._engine.pending()) > 0:
            self._transport.write(self._engine.peek(size))
            self._engine.pop(size)
        if not self.over.done() and self._engine.pending() < 0:
            self._end("closed")

    def _tick(self) -> None:
        if not self.over.done():
            due = self._engine.tick(self._loop.time())
            self._timer = self._loop.call_later(
                max(0.01, due - self._loop.time()) if due else 1.0, self._tick
            )
            self.turn()

    def _dispatch(self) -> None:
        while not self.over.done() and (event := self._collector.peek()):
            name = event.type.name
            if name in ("PN_TRANSPORT_ERROR", "PN_CONNECTION_REMOTE_CLOSE"):
                self._end(name)
            elif name in ("PN_LINK_REMOTE_OPEN", "PN_LINK_REMOTE_CLOSE", "PN_LINK_FLOW"):
                self._on_event(name, event.link)
            elif name == "PN_DELIVERY":
                self._on_event(name, event.delivery)
            if not self.over.done():
                self._collector.pop()

    def _end(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(ConnectionError(why))
            self.over.exception()  # nobody has to ask
            if self._timer is not None:
                self._timer.cancel()
            if self._transport is not None:
                self._transport.abort()

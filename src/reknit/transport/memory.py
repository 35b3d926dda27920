"""A transport within one process: the same frames and the same codec, without a socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reknit.credentials import NO_CREDENTIALS, Credentials
from reknit.errors import InvalidConfig, MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, Buffer
from reknit.transport.connection import Handler
from reknit.wire.codec import Decoder

_listeners: dict[str, Handler] = {}
_numbers = itertools.count(1)


class Guest(NamedTuple):
    """Somebody outside of this process, for whom a part of it opens a connection."""

    certified: Credentials
    address: str
    door: str


class MemoryConnection:
    """One end of a pipe between two handlers on one event loop."""

    def __init__(
        self, handler: Handler, peer: str, guest: Guest | None = None, bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self.peer = peer
        self.certified = NO_CREDENTIALS if guest is None else guest.certified
        self.is_inside = guest is None
        self.door = "" if guest is None else guest.door
        self._loop = asyncio.get_running_loop()
        self.sent_at = self._loop.time()
        self._handler = handler
        self._decoder = Decoder(bytes_max)
        self._other: MemoryConnection | None = None

    @property
    def received_at(self) -> float:
        """Now: both ends are in this process, so neither is ever silent, even after the process was suspended."""
        return self._loop.time()

    @property
    def held_bytes(self) -> int:
        """Nothing: the other side takes everything in the next turn of the event loop."""
        return 0

    def pause_reading(self) -> None:
        """Ignored: the other side is a part of this process, which limits itself."""

    def resume_reading(self) -> None:
        """Ignored."""

    def join(self, other: MemoryConnection) -> None:
        """Everything that is sent here arrives there."""
        self._other = other

    def send(self, buffers: Sequence[Buffer]) -> None:
        other = self._other
        if other is not None:
            self.sent_at = self._loop.time()
            self._loop.call_soon(other._receive, b"".join(buffers))

    def _receive(self, data: bytes) -> None:
        if self._other is None:
            return
        try:
            items = self._decoder.feed(data)
        except MalformedFrame as error:
            self._handler.malformed(self, error)
            return
        if items:
            self._handler.received(self, items)

    def close(self) -> None:
        other, self._other = self._other, None
        if other is not None:
            self._loop.call_soon(other._hang_up)
            self._loop.call_soon(self._handler.lost, self)

    def _hang_up(self) -> None:
        if self._other is not None:
            self._other = None
            self._handler.lost(self)

    abort = close


def new_url(name: str) -> str:
    """An address that no other listener of this process has."""
    return f"memory://{next(_numbers)}/{name}"


def listen(url: str, handler: Handler) -> Callable[[], None]:
    """Accept connections to `memory://NAME` in this process; returns a function that stops this."""
    if url in _listeners:
        raise InvalidConfig("node.listen", url, "is in use in this process; choose another name")
    _listeners[url] = handler

    def stop() -> None:
        _listeners.pop(url, None)

    return stop


def connect(url: str, handler: Handler, guest: Guest | None = None) -> MemoryConnection:
    """Open a connection to a listener of this process. Raises `OSError` if there is none.

    One for a guest counts as a connection from outside: the guest has to prove who it is.
    """
    listener = _listeners.get(url)
    if listener is None:
        raise ConnectionRefusedError(f"nothing listens at {url} in this process")
    name = f"{url} (client)" if guest is None else f"{guest.address}:{url}"
    here, there = MemoryConnection(handler, url), MemoryConnection(listener, name, guest)
    here.join(there)
    there.join(here)
    listener.opened(there)
    handler.opened(here)
    return here

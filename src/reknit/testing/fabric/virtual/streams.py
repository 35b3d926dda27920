"""Simulated TCP: bytes in order or not at all, with delays, resets, cuts in one direction or both, and full buffers."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from enum import Enum
from typing import Any, Final, Protocol

from reknit.frame import Buffer
from reknit.testing.fabric.virtual.hosts import Life
from reknit.testing.fabric.virtual.loop import VirtualLoop

HIGH_BYTES: Final = 64 << 10
"""The default of asyncio: with more unsent bytes than this, a protocol is told to pause."""


class _Sign(Enum):
    """What goes over a connection besides bytes."""

    END = "the sender writes no more"
    RESET = "the connection is broken"


class Wire(Protocol):
    """The network between the hosts; see `reknit.testing.fabric.virtual.network`."""

    loop: VirtualLoop
    socket_bytes: int
    """How much the systems on both sides buffer for one direction of a connection."""

    def is_cut(self, start: str, stop: str) -> bool:
        """Whether nothing passes from one address to another."""

    def delay_s(self, start: str, stop: str) -> float:
        """How long something takes from one address to another."""

    def pieces(self, data: bytes) -> Iterable[bytes]:
        """The pieces in which bytes arrive."""

    def trace(self, *what: object) -> None:
        """Something happened."""

    def wrote(self, here: tuple[str, int], there: tuple[str, int], data: bytes) -> None:
        """A protocol wrote bytes, from one address to another."""

    def closed(self, end: StreamEnd) -> None:
        """One side of a connection is gone."""


class _VirtualSocket:
    """What asyncio shows of a socket. The system knows no file of this number: only the transport can write to it."""

    family = socket.AF_INET

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        return -1

    def setsockopt(self, *option: object) -> None:
        """Nothing to set."""


class StreamEnd(asyncio.Transport):
    """One side of a connection, as the protocol sees it."""

    def __init__(
        self, wire: Wire, life: Life, context: Context, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__(extra={"sockname": here, "peername": there, "socket": _VirtualSocket(here)})
        self.here, self.there, self.life = here, there, life
        self.other: StreamEnd
        self.protocol: Any = None
        self.context = context
        self._wire, self._loop, self._context = wire, wire.loop, context
        self._queue: deque[bytes | _Sign] = deque()
        """What is on its way to the other side."""
        self._due = 0
        """How many parts of it should have arrived, and are held back by a cut."""
        self._at = 0.0
        self._unread = 0
        """Bytes that the other side's protocol has not taken."""
        self._inbox: deque[bytes | _Sign] = deque()
        self._is_paused = self._is_closing = self._is_over = self._is_blocked = self._has_ended = False
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4

    # -- for the protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread - self._wire.socket_bytes)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._has_ended and not self._is_closing:
            self._has_ended = True
            self._send(_Sign.END)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        if not data or self._is_closing or self._has_ended:
            return
        data = bytes(data)
        self._wire.wrote(self.here, self.there, data)
        for piece in self._wire.pieces(data):
            self._unread += len(piece)
            self._send(piece)
        self._check_buffer()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._read, context=self._context)

    def close(self) -> None:
        if not self._is_closing:
            if not self._has_ended:
                self._send(_Sign.END)
            self._end(None)

    def abort(self) -> None:
        if not self._is_closing:
            self._queue.clear()
            self._due = 0
            self._send(_Sign.RESET)
            self._end(None)

    # -- on the way to the other side

    def _send(self, part: bytes | _Sign) -> None:
        self._queue.append(part)
        now = self._loop.now
        self._at = max(now + self._wire.delay_s(self.here[0], self.there[0]), self._at)
        self._loop.call_at(self._at, self._pass_on, context=Context())

    def _pass_on(self) -> None:
        if not self._queue:
            return  # the connection was reset
        if self._wire.is_cut(self.here[0], self.there[0]):
            self._due += 1
            return
        self.other.arrive(self._queue.popleft())

    def healed(self) -> None:
        """The network lets things pass again."""
        due, self._due = self._due, 0
        for _ in range(due):
            self._at = max(self._loop.now + self._wire.delay_s(self.here[0], self.there[0]), self._at)
            self._loop.call_at(self._at, self._pass_on, context=Context())

    def arrive(self, part: bytes | _Sign) -> None:
        """Something came over the network."""
        if not self.life.is_alive or self._is_over:
            self._refuse(part)
            return
        self._wire.trace(self.there, self.here, len(part) if isinstance(part, bytes) else part.name)
        self._inbox.append(part)
        self._loop.call_soon(self._read, context=self._context)

    def _refuse(self, part: bytes | _Sign) -> None:
        """Nobody is there. A system that runs says so; from a machine without power nothing comes back."""
        if self.life.host.is_powered and part is not _Sign.RESET:
            self._queue.clear()
            self._send(_Sign.RESET)

    # -- in the host's own time

    def _read(self) -> None:
        while self._inbox and not self._is_closing and (not self._is_paused or self._inbox[0] is _Sign.RESET):
            part = self._inbox.popleft()
            if isinstance(part, bytes):
                self._receive(part)
            elif part is _Sign.RESET:
                self._end(ConnectionResetError(104, "Connection reset by peer"))
            elif not self.protocol.eof_received():
                self.close()

    def _receive(self, data: bytes) -> None:
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self._is_closing:
                space: Any = memoryview(protocol.get_buffer(len(view))).cast("B")
                size = min(len(space), len(view))
                space[:size] = view[:size]
                protocol.buffer_updated(size)
                view = view[size:]
        else:
            protocol.data_received(data)
        self.other.taken(len(data))

    def taken(self, size: int) -> None:
        """The other side has read bytes."""
        self._unread -= size
        if self._is_blocked and not self._is_closing:
            self._loop.call_soon(self._check_buffer, context=self._context)

    def _check_buffer(self) -> None:
        size = self.get_write_buffer_size()
        if self._is_closing or self.protocol is None:
            return
        if not self._is_blocked and size > self._high:
            self._is_blocked = True
            self.protocol.pause_writing()
        elif self._is_blocked and size <= self._low:
            self._is_blocked = False
            self.protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        self._is_closing = True
        self._loop.call_soon(self._over, error, context=self._context)

    def _over(self, error: Exception | None) -> None:
        self._is_over = True
        self._wire.closed(self)
        self.protocol.connection_lost(error)

    def vanish(self) -> None:
        """The simulation ended."""
        self._is_closing = self._is_over = True

    # -- faults

    def reset(self) -> None:
        """The network breaks the connection, for both sides."""
        for end in (self, self.other):
            end._queue.clear()
            end._due = 0
            if not end._is_over:
                end.arrive(_Sign.RESET)

    def crashed(self) -> None:
        """The host of this side crashed. A system that goes on running tells the other side."""
        self._queue.clear()
        self._due = 0
        self._wire.closed(self)
        self._is_closing = True
        if self.life.host.is_powered:
            self._send(_Sign.RESET)


class VirtualServer:
    """Accepts connections at one address."""

    def __init__(
        self,
        life: Life,
        context: Context,
        address: tuple[str, int],
        factory: Callable[[], Any],
        on_close: Callable[[VirtualServer], None],
    ) -> None:
        self.life, self.context, self.address, self.factory = life, context, address, factory
        self.sockets = (_VirtualSocket(address),)
        self._on_close = on_close

    def accept(self, end: StreamEnd) -> None:
        """A connection was opened: in the host's own time, a protocol is made for it."""
        end.protocol = self.factory()
        end.protocol.connection_made(end)

    def is_serving(self) -> bool:
        return self.life.is_alive

    def close(self) -> None:
        self._on_close(self)

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

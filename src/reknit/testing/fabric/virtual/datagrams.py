"""Simulated UDP: datagrams that arrive late, in another order, twice or not at all, to one address or to a group."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, Protocol, Self

from reknit.frame import Buffer
from reknit.testing.fabric.virtual.hosts import Host, Life
from reknit.testing.fabric.virtual.loop import VirtualLoop

Address = tuple[str, int]

FIRST_FILE: Final = 1 << 30
"""Descriptors of simulated sockets start here: the system has none of these numbers."""
FULL_S: Final = 0.001
"""How long a socket has no room for datagrams to be sent."""


class Air(Protocol):
    """The network between the hosts; see `reknit.testing.fabric.virtual.network`."""

    loop: VirtualLoop

    def is_cut(self, start: str, stop: str) -> bool:
        """Whether nothing passes from one address to another."""

    def delay_s(self, start: str, stop: str) -> float:
        """How long something takes from one address to another."""

    def checksum(self, data: bytes) -> int:
        """The same for the same whole messages in two runs of a simulation."""

    def trace(self, *what: object) -> None:
        """Something happened."""

    def next_port(self) -> int:
        """A port that nobody has."""


class DatagramNetwork:
    """All sockets for datagrams of one simulation, and what happens to datagrams on the way."""

    def __init__(self, air: Air, rng: Random) -> None:
        self.air = air
        self.rng = rng
        self.loss_share = 0.0
        self.copy_share = 0.0
        """Datagrams that arrive twice."""
        self.full_share = 0.0
        """Datagrams that the socket has no room for at once."""
        self.buffer_bytes = 1 << 18
        """What a socket holds until it is read; more is lost."""
        self._sockets: dict[int, VirtualSocket] = {}

    def open(self, life: Life) -> VirtualSocket:
        """A new socket of a host."""
        number = FIRST_FILE + len(self._sockets)
        opened = self._sockets[number] = VirtualSocket(self, life, number)
        return opened

    def calm(self) -> None:
        """No faults any more."""
        self.loss_share = self.copy_share = self.full_share = 0.0

    def of(self, number: int) -> VirtualSocket:
        """The socket with this descriptor."""
        return self._sockets[number]

    def crashed(self, host: Host) -> None:
        """A host crashed: nothing arrives there any more."""
        for one in self._sockets.values():
            if one.life.host is host:
                one.close()

    def send(self, data: bytes, here: Address, there: Address) -> None:
        """A datagram is on its way to everybody who listens at an address."""
        self.air.trace(here, "sends", there, self.air.checksum(data))
        for one in list(self._sockets.values()):
            if one.listens_at(there):
                for _ in range(2 if self.rng.random() < self.copy_share else 1):
                    self._carry(data, here, one)

    def _carry(self, data: bytes, here: Address, to: VirtualSocket) -> None:
        start, stop = here[0], to.life.host.address
        if start != stop and (self.air.is_cut(start, stop) or self.rng.random() < self.loss_share):
            return
        delay_s = self.air.delay_s(start, stop) if start != stop else 0.0
        self.air.loop.call_later(delay_s, to.arrive, data, here, context=Context())


class VirtualSocket:
    """A socket of a host, with what `reknit.transport.udp` uses of one."""

    def __init__(self, network: DatagramNetwork, life: Life, number: int) -> None:
        self.life = life
        self._network, self._number = network, number
        self._address: Address | None = None
        self._is_member = self._is_closed = False
        self._inbox: deque[tuple[bytes, Address]] = deque()
        self._bytes = 0
        self._reader: asyncio.Handle | None = None
        self._writer: asyncio.Handle | None = None
        self._is_due = False

    # -- as a socket

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._number

    def bind(self, address: Address) -> None:
        self._address = (address[0], address[1] or self._network.air.next_port())

    def getsockname(self) -> Address:
        return self._address or ("0.0.0.0", 0)

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Join a group. The other options that matter are refused, as by an older system."""
        if (level, option) == (socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP):
            self._is_member = True
        elif level == socket.IPPROTO_UDP or (level == socket.SOL_SOCKET and isinstance(value, bytes)):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))

    def getsockopt(self, level: int, option: int) -> int:
        return 2 * self._network.buffer_bytes

    def close(self) -> None:
        self._is_closed = True
        self._reader = self._writer = None
        self._inbox.clear()

    def sendmsg(
        self, parts: Sequence[Buffer], ancillary: Sequence[object], flags: int, address: Address
    ) -> int:
        if self._network.rng.random() < self._network.full_share:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = b"".join(parts)
        self._network.send(data, self.getsockname(), address)
        return len(data)

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        if not self._inbox:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data, address = self._inbox.popleft()
        self._bytes -= len(data)
        return data[:size], address

    # -- on the network

    def listens_at(self, address: Address) -> bool:
        """Whether it gets what is sent there."""
        is_group = int(address[0].partition(".")[0]) >= 224
        return not self._is_closed and self._address == address and (self._is_member or not is_group)

    def arrive(self, data: bytes, address: Address) -> None:
        """A datagram came; without room it is lost."""
        if self._is_closed or self._bytes + len(data) > self._network.buffer_bytes:
            return
        self._inbox.append((data, address))
        self._bytes += len(data)
        self._wake()

    # -- for the event loop

    def on_readable(self, callback: Callable[..., object] | None, *args: Any) -> None:
        """Call this while there is something to read; None ends that."""
        self._reader = _handle(self._network.air.loop, callback, args)
        self._wake()

    def on_writable(self, callback: Callable[..., object] | None, *args: Any) -> None:
        """Call this while there is room to send; None ends that."""
        self._writer = _handle(self._network.air.loop, callback, args)
        self._wake_writer()

    def _wake(self) -> None:
        if self._reader is not None and self._inbox and not self._is_due:
            self._is_due = True
            self._network.air.loop.call_soon(self._read, context=_context(self._reader))

    def _read(self) -> None:
        self._is_due = False
        if self._reader is not None:
            self._reader._run()
            self._wake()

    def _wake_writer(self) -> None:
        if self._writer is not None:
            self._network.air.loop.call_later(FULL_S, self._write, context=_context(self._writer))

    def _write(self) -> None:
        if self._writer is not None:
            self._writer._run()
            self._wake_writer()


def _handle(loop: VirtualLoop, callback: Callable[..., object] | None, args: Any) -> asyncio.Handle | None:
    return None if callback is None else asyncio.Handle(callback, args, loop, copy_context())


def _context(handle: Any) -> Context:
    """A copy, as the handle enters its own."""
    context: Context = handle._context
    return context.copy()

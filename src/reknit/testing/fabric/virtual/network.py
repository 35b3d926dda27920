"""The network between the hosts of a simulation: delays, cuts, resets, and who listens where."""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections.abc import Callable, Iterable
from contextvars import copy_context
from random import Random
from typing import Any, Final

from reknit import environment
from reknit.testing.fabric.virtual.datagrams import DatagramNetwork, VirtualSocket
from reknit.testing.fabric.virtual.hosts import Host, Life
from reknit.testing.fabric.virtual.loop import VirtualLoop
from reknit.testing.fabric.virtual.streams import StreamEnd, VirtualServer

CONNECT_S: Final = 60.0
"""How long a system tries to open a connection before it gives up."""
UNREACHABLE_S: Final = 3.0
"""How long it takes to notice that a machine is off."""
FIRST_PORT: Final = 40_000

HostPort = tuple[str, int]


class FabricNetwork:
    """All connections of one simulation."""

    def __init__(self, loop: VirtualLoop, rng: Random, datagram_rng: Random) -> None:
        self.loop = loop
        self.socket_bytes = 1 << 16
        self.delay_s_range = (0.0001, 0.005)
        self.split_share = 0.0
        self.hosts: dict[str, Host] = {}
        self.folder = b"/"
        """Where the disks' files are: no two runs use the same."""
        self.lines: list[str] | None = None
        """Everything that was sent and arrived, and when, if it is wanted: the same for the same steps."""
        self.tap: Callable[[HostPort, HostPort, bytes], None] | None = None
        """Called with everything that is written: from where, to where, and the bytes."""
        self.datagrams = DatagramNetwork(self, datagram_rng)
        self._rng = rng
        self._servers: dict[tuple[str, int], VirtualServer] = {}
        self._ends: dict[StreamEnd, None] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._slow: dict[tuple[str, str], float] = {}
        self._ports = FIRST_PORT
        self._healed: list[asyncio.Future[None]] = []

    # -- as the wire of connections

    def is_cut(self, start: str, stop: str) -> bool:
        return (start, stop) in self._cuts

    def delay_s(self, start: str, stop: str) -> float:
        low, high = self.delay_s_range
        return self._rng.uniform(low, high) + self._slow.get((start, stop), 0.0)

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if len(data) > 1 and self._rng.random() < self.split_share:
            cut = self._rng.randrange(1, len(data))
            return (data[:cut], data[cut:])
        return (data,)

    def checksum(self, data: bytes) -> int:
        return 0 if self.folder in data else zlib.crc32(data)

    def wrote(self, here: HostPort, there: HostPort, data: bytes) -> None:
        if self.lines is not None:
            self.trace(here, "writes", self.checksum(data))
        if self.tap is not None:
            self.tap(here, there, data)

    def trace(self, *what: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.loop.now:.6f} {what}")

    def closed(self, end: StreamEnd) -> None:
        self._ends.pop(end, None)

    # -- for the event loop

    async def create_server(self, factory: Callable[[], Any], host: str, port: int) -> VirtualServer:
        """Accept connections at a port of the running host."""
        life = _life()
        address = (life.host.address, port or self.next_port())
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = VirtualServer(life, copy_context(), address, factory, self._forget)
        self._servers[address] = server
        return server

    def _forget(self, server: VirtualServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Connect from the running host. Raises `OSError`."""
        life = _life()
        here = life.host.address
        if host in ("127.0.0.1", "localhost"):
            host = here
        await self._reach(here, host)
        server = self._servers.get((host, port))
        if server is None or not server.life.is_alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        mine, theirs = (here, self.next_port()), (host, port)
        client = StreamEnd(self, life, copy_context(), mine, theirs)
        other = StreamEnd(self, server.life, server.context.copy(), theirs, mine)
        client.other, other.other = other, client
        self._ends[client] = self._ends[other] = None
        self.loop.call_soon(server.accept, other, context=other.context)
        protocol = client.protocol = factory()
        protocol.connection_made(client)
        return client, protocol

    async def _reach(self, here: str, there: str) -> None:
        """Wait as long as the first packets take. Raises `OSError` if none gets through."""
        deadline = self.loop.now + CONNECT_S
        host = self.hosts.get(there)
        while True:
            await asyncio.sleep(self.delay_s(here, there) + self.delay_s(there, here))
            if host is None or not host.is_powered:
                await asyncio.sleep(UNREACHABLE_S)
                raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
            if not self.is_cut(here, there) and not self.is_cut(there, here):
                return
            if self.loop.now >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(1.0)  # the system sends its first packet again

    def open_socket(self, life: Life) -> VirtualSocket:
        """A socket for datagrams, on the running host."""
        return self.datagrams.open(life)

    def socket(self, number: int) -> VirtualSocket:
        """The socket for datagrams with this descriptor."""
        return self.datagrams.of(number)

    def next_port(self) -> int:
        """A port that nobody has."""
        self._ports += 1
        return self._ports

    def close(self) -> None:
        """The simulation ends, and all connections with it."""
        for end in self._ends:
            end.vanish()

    # -- faults

    def cut(self, start: str, stop: str) -> None:
        """Let nothing pass from one address to another, until as many calls of `heal` came."""
        self._cuts[start, stop] = self._cuts.get((start, stop), 0) + 1

    def heal(self, start: str, stop: str) -> None:
        """Undo one cut."""
        left = self._cuts.get((start, stop), 0) - 1
        if left > 0:
            self._cuts[start, stop] = left
            return
        self._cuts.pop((start, stop), None)
        for end in [one for one in self._ends if (one.here[0], one.there[0]) == (start, stop)]:
            end.healed()

    def heal_all(self) -> None:
        """Undo all cuts and delays."""
        self._slow.clear()
        self.datagrams.calm()
        for start, stop in list(self._cuts):
            self._cuts[start, stop] = 1
            self.heal(start, stop)

    def slow(self, start: str, stop: str, seconds: float) -> None:
        """Delay everything from one address to another; 0 ends that."""
        self._slow[start, stop] = seconds

    def reset(self, address: str, other: str = "") -> int:
        """Break the connections of a host, or those between two; returns how many."""
        broken = [
            end for end in self._ends if end.here[0] == address and (not other or end.there[0] == other)
        ]
        for end in broken:
            end.reset()
        return len(broken)

    def crashed(self, host: Host) -> None:
        """A host crashed: nobody listens there any more, and its connections end."""
        for server in [one for one in self._servers.values() if one.life.host is host]:
            self._forget(server)
        for end in [one for one in self._ends if one.life.host is host]:
            end.crashed()
        self.datagrams.crashed(host)


def _life() -> Life:
    life = environment.current()
    assert isinstance(life, Life), "the code runs on a simulated host"
    return life

"""A group's datagrams over TCP connections, for networks without multicast.

The semantics are the same: a datagram arrives whole or not at all. A connection without room drops datagrams, and
receivers request them again. Every member listens, and connects to the members that it sends to.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from reknit.frame import Buffer
from reknit.transport.udp import HostPort, OnDatagram, parse_address
from reknit.wire.bundle import DATAGRAM_BYTES_MAX, OVERHEAD_BYTES, PIECE_BYTES_MAX, Datagram

_LENGTH: Final = struct.Struct("<I")
_RETRY_S: Final = 0.2


class TcpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the buffer of a member."""

    interface: str = "127.0.0.1"
    """The address to listen on. Other members connect to it."""
    port: int = 0
    """The port to listen on; 0 takes a free port."""
    write_buffer_bytes: int = 8 << 20
    """How many bytes may wait for one member before more are dropped."""


class TcpDatagrams:
    """One member's connections. The same interface as `UdpTransport`."""

    is_reply_possible = False

    def __init__(self, config: TcpConfig) -> None:
        self.config = config
        self.warnings: list[str] = []
        self.dropped = 0
        self.buffer_bytes = config.write_buffer_bytes // 2
        self.datagram_bytes = DATAGRAM_BYTES_MAX
        self.piece_bytes = min(self.datagram_bytes - OVERHEAD_BYTES, PIECE_BYTES_MAX)
        self._on_datagram: OnDatagram = lambda data, address: None
        self._on_turn: Callable[[], None] = lambda: None
        self._server: asyncio.Server | None = None
        self._host, self._port = config.interface, config.port
        self._peers: list[HostPort] = []
        self._out: dict[HostPort, _Outgoing] = {}
        self._incoming: set[asyncio.Transport] = set()

    @property
    def address(self) -> str:
        """Where members connect to, as `IP:PORT`, also if the interface was given by its name."""
        return f"{self._host}:{self._port}"

    async def open(self, on_datagram: OnDatagram, on_turn: Callable[[], None]) -> None:
        self._on_datagram, self._on_turn = on_datagram, on_turn
        await self.listen()

    async def listen(self) -> None:
        """Take a port, so that `address` is known. `open` calls it if needed."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: _Incoming(self._incoming, self._received, self._turned),
                self.config.interface,
                self.config.port,
            )
            self._host, self._port = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for outgoing in self._out.values():
            outgoing.close()
        for transport in list(self._incoming):
            transport.close()
        await asyncio.sleep(0)

    def _received(self, data: bytes | memoryview, address: HostPort) -> None:
        self._on_datagram(data, address)

    def _turned(self) -> None:
        self._on_turn()

    def set_peers(self, addresses: Iterable[str]) -> None:
        self._peers = [parse_address(address) for address in addresses if address != self.address]
        for address in [address for address in self._out if address not in self._peers]:
            if self._out[address].is_idle:
                self._out.pop(address).close()

    def send_all(self, datagrams: list[Datagram]) -> None:
        for address in self._peers:
            self._send(datagrams, address)

    def send(self, datagrams: list[Datagram], address: str) -> None:
        self._send(datagrams, parse_address(address))

    def _send(self, datagrams: list[Datagram], address: HostPort) -> None:
        outgoing = self._out.get(address)
        if outgoing is None:
            outgoing = self._out[address] = _Outgoing(address, self.config.write_buffer_bytes)
        self.dropped += outgoing.send(datagrams)


class _Outgoing(asyncio.Protocol):
    """A connection to one member, opened with the first datagram, and again after it broke."""

    def __init__(self, address: HostPort, bytes_max: int) -> None:
        self._address, self._bytes_max = address, bytes_max
        self._transport: asyncio.Transport | None = None
        self._waiting: list[Buffer] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._transport is None or not self._transport.get_write_buffer_size()

    def send(self, datagrams: list[Datagram]) -> int:
        """Send datagrams; returns how many were dropped because too much waits."""
        framed = [p for each in datagrams for p in (_LENGTH.pack(sum(map(len, each))), *each)]
        if self._transport is None:
            if len(self._waiting) + len(framed) > 4096:
                return len(datagrams)
            self._waiting += framed
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._connect())
        elif self._transport.get_write_buffer_size() > self._bytes_max:
            return len(datagrams)
        else:
            self._transport.writelines(framed)
        return 0

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except (OSError, UnicodeError):
            self._waiting.clear()  # the same as a loss on the network
            await asyncio.sleep(_RETRY_S)
        finally:
            self._task = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.writelines(self._waiting)
        self._waiting = []

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.close()


class _Incoming(asyncio.Protocol):
    """A connection from a member: datagrams, each with its length before it."""

    def __init__(
        self, connections: set[asyncio.Transport], on_datagram: OnDatagram, on_turn: Callable[[], None]
    ) -> None:
        self._connections, self._on_datagram, self._on_turn = connections, on_datagram, on_turn
        self._buffer = bytearray()
        self._peer: HostPort = ("", 0)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = transport.get_extra_info("peername")[:2]
        self._connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._buffer, at)[0]
            if length > DATAGRAM_BYTES_MAX:
                assert self._transport is not None
                self._transport.abort()  # the peer does not speak this protocol
                return
            if len(self._buffer) - at < _LENGTH.size + length:
                break
            at += _LENGTH.size
            self._on_datagram(bytes(self._buffer[at : at + length]), self._peer)
            at += length
        if at:
            del self._buffer[:at]
            self._on_turn()

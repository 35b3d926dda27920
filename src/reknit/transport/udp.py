"""UDP multicast for groups, on any asyncio loop.

Reading is a bounded drain behind `add_reader`, because asyncio's own datagram protocol loses most datagrams at full
rate. Where the kernel supports it, all pieces of a batch are one system call on each side (UDP segmentation and
receive offload). Datagrams that the socket has no room for are queued and sent later.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from reknit.environment import open_datagram_socket
from reknit.errors import InvalidConfig
from reknit.transport.heap import keep_heap
from reknit.wire.bundle import DATAGRAM_BYTES_MAX, OVERHEAD_BYTES, PIECE_BYTES_MAX, Datagram

HostPort = tuple[str, int]
OnDatagram = Callable[[bytes | memoryview, HostPort], None]

DRAIN_MAX: Final = 64
"""How many datagrams are read before yielding to the event loop."""
SEGMENTS_MAX: Final = 64
PARTS_MAX: Final = 1024
"""How many parts the kernel joins in one call (IOV_MAX)."""
UNSENT_MAX: Final = 4096
IP_UDP_BYTES: Final = 28
LARGE_BYTES: Final = 8_000
_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_SO_RCVBUFFORCE: Final = 33
_SO_ATTACH_FILTER: Final = 26
_SIOCGIFMTU: Final = 0x8921
_SEGMENT_BYTES: Final = struct.Struct("=H")
_GRO_SPACE: Final = socket.CMSG_SPACE(4) if hasattr(socket, "CMSG_SPACE") else 0


class UdpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses and buffers of a group's member."""

    group: str = "239.75.78.84:7475"
    """The multicast address and port; empty if only seeds are used."""
    interface: str = "127.0.0.1"
    """The address of the network interface to use."""
    port: int = 0
    """Our own port, for datagrams to this member alone; 0 takes a free port."""
    ttl: int = 1
    """How many routers a datagram may pass."""
    receive_buffer_bytes: int = 4 << 20
    """How much the kernel buffers between two reads."""
    is_offload_wanted: bool = True
    """Use segmentation and receive offload where the kernel supports them."""


@lru_cache(maxsize=4096)
def parse_address(text: str) -> HostPort:
    """Host and port. Raises `InvalidConfig`.

    >>> parse_address("239.1.2.3:7475")
    ('239.1.2.3', 7475)
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        raise InvalidConfig("group.address", "the call", f"must be HOST:PORT, not {text!r}")
    return host, int(port)


def check_ipv4(setting: str, text: str) -> None:
    """Raise `InvalidConfig` unless this is an IPv4 address.

    >>> check_ipv4("group.interface", "127.0.0.1")
    """
    try:
        IPv4Address(text)
    except ValueError:
        raise InvalidConfig(
            setting, "the call", f"must be an IPv4 address such as 127.0.0.1, not {text!r}"
        ) from None


@contextlib.contextmanager
def _blaming(setting: str, value: str) -> Iterator[None]:
    """An error of the system names the setting that it comes from."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InvalidConfig(setting, "the call", f"can't be used: {value}: {reason}") from None


class UdpTransport:
    """One member's sockets."""

    is_reply_possible = True

    def __init__(self, config: UdpConfig) -> None:
        self.config = config
        self.warnings: list[str] = []
        self.dropped = 0
        """Datagrams that could neither be sent nor queued."""
        self.buffer_bytes = self.datagram_bytes = self.piece_bytes = 0
        self._group = parse_address(config.group) if config.group else None
        self._sockets: list[socket.socket] = []
        self._has_offload = False
        self._peers: list[HostPort] = []
        self._unsent: deque[tuple[Datagram, int, HostPort]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_datagram: OnDatagram = lambda data, address: None
        self._on_turn: Callable[[], None] = lambda: None

    async def listen(self) -> None:
        """Open the sockets. After this, address, buffer and datagram size are known. Raises `InvalidConfig`."""
        config = self.config
        check_ipv4("group.interface", config.interface)
        self._own = open_datagram_socket()
        self._sockets.append(self._own)
        place = f"{config.interface}:{config.port}" if config.port else config.interface
        with _blaming("group.port" if config.port else "group.interface", place):
            self._own.bind((config.interface, config.port))
        self._own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, config.ttl)
        self._own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(config.interface))
        if self._group is not None:
            check_ipv4("group.address", self._group[0])
            with _blaming("group.address", config.group):
                self._join(self._group)
        self.datagram_bytes = min(_mtu(config.interface) - IP_UDP_BYTES, DATAGRAM_BYTES_MAX)
        buffer = min(self._set_buffer(each) for each in self._sockets)
        # The kernel counts the memory that a datagram takes: for a small one, up to three times its size.
        self.buffer_bytes = buffer if self.datagram_bytes >= LARGE_BYTES else buffer // 2
        self.piece_bytes = min(self.datagram_bytes - OVERHEAD_BYTES, PIECE_BYTES_MAX)
        self._has_offload = config.is_offload_wanted and all(_set_gro(each) for each in self._sockets)
        keep_heap()

    @property
    def address(self) -> str:
        host, port = self._own.getsockname()
        return f"{host}:{port}"

    def _join(self, group: HostPort) -> None:
        joined = open_datagram_socket()
        self._sockets.append(joined)
        joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        joined.bind(group)
        request = socket.inet_aton(group[0]) + socket.inet_aton(self.config.interface)
        joined.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        _drop_own(joined, *self._own.getsockname())

    def _set_buffer(self, each: socket.socket) -> int:
        """Request the receive buffer, by force if permitted, and warn if the kernel gives less."""
        wanted = self.config.receive_buffer_bytes
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted)
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2 < wanted and sys.platform == "linux":
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, wanted)
        given = each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if given < wanted:
            text = (
                f"the kernel gave a receive buffer of {given} bytes, not {wanted}, so senders slow down to avoid "
                f"loss; run `sysctl -w net.core.rmem_max={wanted}`, or lower receive_buffer_bytes"
            )
            self.warnings = [text]
        return given

    # -- running

    async def open(self, on_datagram: OnDatagram, on_turn: Callable[[], None]) -> None:
        """Call `on_datagram` for each datagram, and `on_turn` after each drain."""
        self._loop = asyncio.get_running_loop()
        self._on_datagram, self._on_turn = on_datagram, on_turn
        for each in self._sockets:
            self._loop.add_reader(each.fileno(), self._drain, each)

    async def close(self) -> None:
        if self._loop is not None:
            for each in self._sockets:
                self._loop.remove_reader(each.fileno())
            self._loop.remove_writer(self._own.fileno())
        for each in self._sockets:
            each.close()
        self._sockets.clear()
        self._loop = None

    def set_peers(self, addresses: Iterable[str]) -> None:
        """The members to send to where there is no multicast."""
        own = self.address
        self._peers = [parse_address(address) for address in addresses if address != own]

    def _drain(self, each: socket.socket) -> None:
        on_datagram = self._on_datagram
        try:
            if self._has_offload:
                for _ in range(DRAIN_MAX):
                    data, ancillary, _, address = each.recvmsg(65_536, _GRO_SPACE)
                    if not ancillary:
                        on_datagram(data, address)
                    else:
                        _split(data, ancillary, address, on_datagram)
            else:
                for _ in range(DRAIN_MAX):
                    on_datagram(*each.recvfrom(65_536))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.dropped += 1  # the error of an unreachable port
        self._on_turn()

    # -- sending

    def send_all(self, datagrams: list[Datagram]) -> None:
        """Send to every member: by multicast, or one after the other."""
        for address in [self._group] if self._group is not None else self._peers:
            self._send(datagrams, address)

    def send(self, datagrams: list[Datagram], address: str) -> None:
        """Send to one member."""
        self._send(datagrams, parse_address(address))

    def _send(self, datagrams: list[Datagram], address: HostPort) -> None:
        # Each large datagram is a call of its own anyway.
        are_small = len(datagrams) > 1 and 2 * sum(map(len, datagrams[0])) <= DATAGRAM_BYTES_MAX
        if self._has_offload and are_small:
            for data, size in _runs(datagrams):
                self._put(data, size, address)
        else:
            for datagram in datagrams:
                self._put(datagram, 0, address)

    def _put(self, parts: Datagram, size: int, address: HostPort) -> None:
        if not self._unsent and self._try(parts, size, address):
            return
        if len(self._unsent) >= UNSENT_MAX:
            self.dropped += 1
            return
        self._unsent.append((parts, size, address))
        if len(self._unsent) == 1 and self._loop is not None:
            self._loop.add_writer(self._own.fileno(), self._send_rest)

    def _try(self, parts: Datagram, size: int, address: HostPort) -> bool:
        """False if the socket has no room."""
        if len(parts) > PARTS_MAX:
            parts = [b"".join(parts)]
        try:
            if size:
                segment = (socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_BYTES.pack(size))
                self._own.sendmsg(parts, [segment], 0, address)
            else:
                self._own.sendmsg(parts, [], 0, address)
        except (BlockingIOError, InterruptedError):
            return False
        except (OSError, UnicodeError):
            self.dropped += 1  # no such host, no route, or a closed port: the same as a loss on the network
        return True

    def _send_rest(self) -> None:
        while self._unsent and self._try(*self._unsent[0]):
            self._unsent.popleft()
        if not self._unsent and self._loop is not None:
            self._loop.remove_writer(self._own.fileno())


def _runs(datagrams: list[Datagram]) -> Iterable[tuple[Datagram, int]]:
    """Runs of datagrams of one size, of which the last may be shorter: (parts, segment size or 0)."""
    run: Datagram = []
    count = size = last = 0
    for datagram in datagrams:
        length = sum(map(len, datagram))
        is_full = count >= SEGMENTS_MAX or (count + 1) * size > DATAGRAM_BYTES_MAX
        if count and (length > size or last < size or is_full):
            yield run, size if count > 1 else 0
            run, count = [], 0
        if not count:
            size = length
        run += datagram
        count, last = count + 1, length
    if count:
        yield run, size if count > 1 else 0


def _split(
    data: bytes, ancillary: list[tuple[int, int, bytes]], address: HostPort, on_datagram: OnDatagram
) -> None:
    """Split a buffer that the kernel joined into its datagrams."""
    size = len(data)
    for level, kind, value in ancillary:
        if level == socket.IPPROTO_UDP and kind == _UDP_GRO:
            size = int.from_bytes(value[:4], sys.byteorder)
    view = memoryview(data)
    for at in range(0, len(data), size):
        on_datagram(view[at : at + size], address)


def _set_gro(each: socket.socket) -> bool:
    try:
        each.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        each.getsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT)
    except OSError:
        return False
    return True


def _mtu(interface: str) -> int:
    """The MTU of the interface with this address; Ethernet's if it is not known."""
    with open_datagram_socket() as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                found = socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, request)[20:24])
                if found == interface:
                    return int(
                        struct.unpack_from("=i", fcntl.ioctl(probe.fileno(), _SIOCGIFMTU, request), 16)[0]
                    )
            except OSError:
                continue
    return 1500


def _drop_own(each: socket.socket, host: str, port: int) -> None:
    """Let the kernel drop our own multicast, which comes back to us, before it is copied."""
    ip = struct.unpack("!I", socket.inet_aton(host))[0]
    program = [
        (0x20, 0, 0, 0xFFF0000C),  # the IP header's source address
        (0x15, 0, 2, ip),
        (0x28, 0, 0, 0),  # the UDP header's source port
        (0x15, 1, 0, port),
        (0x06, 0, 0, 0xFFFFFFFF),  # take it
        (0x06, 0, 0, 0),  # drop it
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    pointer = struct.pack("@HP", len(program), ctypes.addressof(code))
    with contextlib.suppress(OSError):  # without the filter, they are dropped by their sender's id
        each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)

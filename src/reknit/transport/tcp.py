"""TCP, with or without TLS, and Unix sockets: frames back to back."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast
from urllib.parse import urlsplit

from reknit.credentials import NO_CREDENTIALS
from reknit.errors import InvalidConfig, MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, Buffer
from reknit.transport.authorities import credentials_of
from reknit.transport.connection import Handler
from reknit.transport.servers import Server, open_server
from reknit.transport.tls_handshake import connect_tls
from reknit.transport.tls_server import CurrentTls
from reknit.transport.unix import UNIX, listen_unix, unix_path, unix_user
from reknit.wire.codec import HELLO_BYTES_MAX, Decoder

DEFAULT_PORT: Final = 7440
NO_USERS: Final = (
    "may not contain a user or password: a token goes into security.token_file or the environment"
)
JOINED_BYTES_MAX: Final = 64 << 10
"""Buffers that are larger together are not joined to be sent: a copy of them costs more than a further call."""
WRITE_BUFFER_BYTES: Final = 1 << 20
"""A connection with more unsent bytes than this counts as blocked."""


def parse_url(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of `tcp://HOST:PORT` or `tls://HOST:PORT`.

    >>> parse_url("tcp://127.0.0.1:7440")
    ('tcp', '127.0.0.1', 7440)
    >>> parse_url("tcp://[::1]")
    ('tcp', '::1', 7440)
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidConfig(
            "address", repr(url), f"is not a valid address ({error}); write tcp://HOST:PORT"
        ) from None
    if "@" in parts.netloc:
        raise InvalidConfig("address", f"{parts.scheme}://{parts.hostname}", NO_USERS)
    if parts.scheme not in ("tcp", "tls") or not parts.hostname:
        raise InvalidConfig(
            "address", repr(url), "is not a valid address; write tcp://HOST:PORT or tls://HOST:PORT"
        )
    return parts.scheme, parts.hostname, DEFAULT_PORT if port is None else port


class TcpConnection(asyncio.BufferedProtocol):
    """One side of a TCP connection."""

    def __init__(
        self,
        handler: Handler,
        bytes_max: int = FRAME_BYTES_MAX,
        lends: bool = False,
        hello_bytes_max: int = 0,
    ) -> None:
        self.peer = "?"
        self.certified, self.is_inside, self.door = NO_CREDENTIALS, False, "tcp"
        self.failure: Exception | None = None
        """Why it broke, if that is known."""
        self.received_at = self.sent_at = 0.0
        self._handler = handler
        self._decoder = Decoder(bytes_max, lends, hello_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._time: Callable[[], float] = asyncio.get_running_loop().time
        self._is_refused = False

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.peer = _name(transport.get_extra_info("peername"))
        self.certified = credentials_of(transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family == socket.AF_UNIX:
            self.peer, self.certified = self.peer if self.peer != "?" else "local:unix", unix_user(raw)
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received_at = self.sent_at = self._time()
        self._handler.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.space()

    def buffer_updated(self, nbytes: int) -> None:
        self.received_at = self._time()
        if self._is_refused:
            return
        self._decoder.filled(nbytes)
        try:
            items = self._decoder.take()
        except MalformedFrame as error:
            self._is_refused = True
            self._handler.malformed(self, error)
            return
        if items:
            self._handler.received(self, items)

    def pause_writing(self) -> None:
        self._handler.blocked(self, True)

    def resume_writing(self) -> None:
        self._handler.blocked(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.failure = exc
        self._handler.lost(self)

    # -- called by the user of the connection

    @property
    def held_bytes(self) -> int:
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return unsent + self._decoder.held_bytes

    def send(self, buffers: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.sent_at = self._time()
        if sum(map(len, buffers)) <= JOINED_BYTES_MAX:
            transport.writelines(buffers)
            return
        for piece in joined(buffers):
            transport.write(piece)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading: the kernel's buffers fill up, and the sender waits."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes in as few pieces as can be had without copying a large one.

    >>> [len(piece) for piece in joined([b"a", b"bc", bytes(100_000), b"d"])]
    [3, 100000, 1]
    """
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) <= JOINED_BYTES_MAX:
            small.append(buffer)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield buffer
    if small:
        yield b"".join(small)


def _name(address: object) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return str(address) if address else "?"


async def listen(
    url: str, handler: Handler, bytes_max: int = FRAME_BYTES_MAX, tls: CurrentTls | None = None
) -> tuple[Server, str]:
    """Accept connections at `url`; returns the server and its actual address, as `open_server`."""
    if url.startswith(UNIX):
        return await listen_unix(
            lambda: TcpConnection(handler, bytes_max, hello_bytes_max=HELLO_BYTES_MAX), url
        )
    scheme, host, port = parse_url(url)
    if scheme == "tls" and tls is None:
        raise InvalidConfig("node.listen", url, "needs transport.tls_cert_file and transport.tls_key_file")
    return await open_server(
        lambda: TcpConnection(handler, bytes_max, hello_bytes_max=HELLO_BYTES_MAX),
        scheme,
        host,
        port,
        tls=tls if scheme == "tls" else None,
    )


async def connect(
    url: str, handler: Handler, bytes_max: int = FRAME_BYTES_MAX, tls: ssl.SSLContext | None = None
) -> TcpConnection:
    """Open a connection; `tls` is for an address with TLS. Raises `OSError` if that fails."""
    loop = asyncio.get_running_loop()
    if url.startswith(UNIX):
        make, path = lambda: TcpConnection(handler, bytes_max, lends=True), unix_path(url)
        return (await loop.create_unix_connection(make, path))[1]
    scheme, host, port = parse_url(url)
    if scheme == "tls":
        assert tls is not None
        return await connect_tls(lambda: TcpConnection(handler, bytes_max, lends=True), host, port, tls)
    _, protocol = await loop.create_connection(
        lambda: TcpConnection(handler, bytes_max, lends=True), host, port
    )
    return protocol

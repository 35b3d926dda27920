"""TLS handshakes whose failure both sides hear of.

asyncio and uvloop drop a connection when its handshake fails, with the alert that OpenSSL has written for the other
side: that would see a closed connection without a reason. Here the alert is kept with the error, and sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)

HANDSHAKE_S: Final = 10.0
"""How long a handshake may take."""
LINGER_S: Final = 2.0
"""How long the other side may take to read an alert."""
READ_BYTES: Final = 64 << 10


class _Handshake(ssl.SSLObject):
    """Keeps the alert that a failure leaves behind with the error."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError as error:
            cast(Any, error).alert = self.outgoing.read()
            raise


class TlsContext(ssl.SSLContext):
    """A context whose handshakes keep their alerts."""

    sslobject_class = _Handshake
    ca_file = ""
    """The authorities for certificates of clients; empty if clients show none."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Handshake)
        made.outgoing = outgoing
        return made


async def connect_tls(make: Callable[[], P], host: str, port: int, context: ssl.SSLContext) -> P:
    """Open a connection and shake hands. Raises `OSError`, of which `ssl.SSLError` is a kind."""
    loop = asyncio.get_running_loop()
    opened = await _connect(host, port)

    async def handshake() -> P:
        _, protocol = await loop.create_connection(
            make, sock=opened, ssl=context, server_hostname=host, ssl_handshake_timeout=HANDSHAKE_S
        )
        return protocol

    return await _told(opened, handshake)


async def accept_tls(make: Callable[[], P], accepted: socket.socket, context: ssl.SSLContext) -> P:
    """Shake hands with a client that connected. Raises `OSError`, of which `ssl.SSLError` is a kind."""
    loop = asyncio.get_running_loop()

    async def handshake() -> P:
        _, protocol = await loop.connect_accepted_socket(
            make, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_S
        )
        return protocol

    return await _told(accepted, handshake)


async def _told(opened: socket.socket, handshake: Callable[[], Awaitable[T]]) -> T:
    """Shake hands; if that fails, tell the other side why.

    The event loop closes its socket when a handshake fails, so the alert goes over a duplicate.
    """
    try:
        spare = opened.dup()
    except OSError:
        opened.close()
        raise
    spare.setblocking(False)
    try:
        return await handshake()
    except OSError as error:
        if alert := getattr(error, "alert", b""):
            await _say(spare, alert)
        raise
    finally:
        spare.close()


async def _say(spare: socket.socket, alert: bytes) -> None:
    """Send an alert, and read until the other side closes: closing with bytes unread would discard the alert."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LINGER_S):
            await loop.sock_sendall(spare, alert)
            spare.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(spare, READ_BYTES):
                pass


async def _connect(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of the host that answers. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        try:
            await loop.sock_connect(opened, address)
        except OSError as error:
            failure = error
            opened.close()
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise failure

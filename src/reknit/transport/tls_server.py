"""A server with TLS: it shakes hands with each client by the context of that moment, and says why one failed.

asyncio's own server keeps one context for ever, and drops a client whose handshake fails in silence.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

from reknit.transport.tls_failures import failure_of_client, is_hang_up
from reknit.transport.tls_handshake import accept_tls

log = logging.getLogger("reknit.transport")

HANDSHAKES_MAX: Final = 1_024
"""Handshakes of one listener at a time; past it, clients wait in the kernel's queue."""
ACCEPT_AGAIN_S: Final = 1.0
"""How long a server waits when it can't accept, as without a free file."""
LOG_S: Final = 10.0
"""How often the same failure of the same host is logged."""
LOG_HOSTS_MAX: Final = 256


class CurrentTls(Protocol):
    """Has the context for new connections. It may change."""

    @property
    def context(self) -> ssl.SSLContext: ...


class HandshakeLog:
    """Logs why handshakes fail: each reason of each host once in `LOG_S`, with the number of those in between."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def failed(self, address: Any, error: BaseException) -> None:
        """A client's handshake failed."""
        host = str(address[0]) if isinstance(address, tuple) and address else str(address)
        why, now = failure_of_client(error), self._clock()
        at, more = self._said.pop((host, why), (-LOG_S, 0))
        if now - at < LOG_S:
            self._said[host, why] = (at, more + 1)
            return
        while len(self._said) >= LOG_HOSTS_MAX:
            del self._said[next(iter(self._said))]
        self._said[host, why] = (now, 0)
        level = logging.DEBUG if is_hang_up(error) else logging.WARNING
        again = f" ({more} more times since the last report)" if more else ""
        log.log(level, "%s: no TLS connection with a client at %s: %s%s", self._url, host, why, again)


class TlsServer:
    """Accepts connections on sockets that listen, until `close`."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Callable[[], asyncio.BaseProtocol],
        tls: CurrentTls,
        url: str,
    ) -> None:
        self.sockets = tuple(sockets)
        self._make = make
        self._tls = tls
        self._log = HandshakeLog(url, asyncio.get_running_loop().time)
        self._room = asyncio.Semaphore(HANDSHAKES_MAX)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets]

    def close(self) -> None:
        """Stop listening. Connections that are open go on."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                await self._room.acquire()
                try:
                    accepted, address = await loop.sock_accept(listening)
                except OSError as error:
                    self._room.release()
                    log.error("a connection could not be accepted: %s", error)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                task = asyncio.create_task(self._shake_hands(accepted, address))
                self._handshakes.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._room.release()

    async def _shake_hands(self, accepted: socket.socket, address: Any) -> None:
        try:
            await accept_tls(self._make, accepted, self._tls.context)
        except OSError as error:
            self._log.failed(address, error)
        except Exception:
            log.exception("a connection from %s could not be taken", address)


async def listening_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """A socket for each address of the host, as `create_server` opens them. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            opened.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(backlog)
            one.setblocking(False)
    except BaseException:
        for one in opened:
            one.close()
        raise
    return opened

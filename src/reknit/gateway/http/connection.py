"""One connection: requests are answered one after the other, until one of them makes it a tunnel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from os import write
from typing import TYPE_CHECKING, cast

import httptools
from wsproto import ConnectionType
from wsproto.connection import Connection as WsConnection
from wsproto.events import CloseConnection, Message, Ping
from wsproto.utilities import RemoteProtocolError

from reknit.gateway.http.feed import Group, Sink, chunk
from reknit.gateway.http.formats import Format
from reknit.gateway.http.requests import Request, RequestReader, TooLarge, answer_head
from reknit.gateway.http.scope import Scope
from reknit.protocol.tunnel.server import TunnelBlocked, TunnelClosed, TunnelOpened

if TYPE_CHECKING:
    from reknit.gateway.http.server import HttpServer

LINGER_S = 2.0
"""How long a connection that is being closed may take to send its last bytes."""
PIPELINE_MAX = 64


class HttpConnection(asyncio.Protocol, Sink):
    """A client's connection. As a tunnel it keeps little more than its transport and its group."""

    __slots__ = (
        "_format", "_is_ending", "_reader", "_server", "_waiting", "_ws",
        "address", "fd", "group", "opened_at", "transport",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._reader: RequestReader | None = None
        self._waiting: list[Request] | None = None
        """Requests that came while one is being answered; None while none is."""
        self._format: Format | None = None
        self._ws: WsConnection | None = None
        self._is_ending = False
        self.group: Group | None = None
        self.address = ""
        self.opened_at = 0.0

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport
        self.transport = cast(asyncio.Transport, transport)
        self.fd: int = self.transport.get_extra_info("socket").fileno()
        peer = self.transport.get_extra_info("peername")
        self.address = peer[0] if peer else "local"
        if not self._server.has_room(self):
            self._refuse(503, "the server has as many connections as it may have files open")
            return
        settings = self._server.settings
        self.transport.set_write_buffer_limits(settings.tunnel_bytes_max)
        self._reader = RequestReader(self._on_request, settings.request_bytes_max)
        self.opened_at = self._server.now()
        self._server.connections[self] = None
        self._server.all_gone.clear()
        self._server.reading[self] = None

    def data_received(self, data: bytes) -> None:
        if self._ws is not None:
            self._receive_frames(data)
        elif self._reader is not None:
            try:
                self._reader.feed(data)
            except TooLarge as error:
                self._refuse(
                    error.status, "the request is over http.request_bytes_max or its headers are too long"
                )
            except httptools.HttpParserError as error:
                self._refuse(400, f"no HTTP/1 request: {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._server.reading.pop(self, None)
        self._reader = self._ws = None
        self._leave()
        if not self._server.connections:
            self._server.all_gone.set()

    def pause_writing(self) -> None:
        self._server.tunnels.receive(TunnelBlocked(True), self, self._server.now())

    def resume_writing(self) -> None:
        self._server.tunnels.receive(TunnelBlocked(False), self, self._server.now())
        self._server.feed.perform()

    # -- requests

    def _on_request(self, request: Request) -> None:
        if self._waiting is None:
            self._waiting = []
            self._server.reading.pop(self, None)
            self._server.start_page(self, request)
        elif len(self._waiting) < PIPELINE_MAX:
            self._waiting.append(request)
        else:
            self._refuse(400, "too many requests at once on one connection")

    def next_request(self) -> None:
        """The last request is answered: on to the one that came meanwhile."""
        if self._waiting:
            self._server.start_page(self, self._waiting.pop(0))
        elif self._reader is not None:
            self._waiting = None
            self.opened_at = self._server.now()
            self._server.reading[self] = None

    def _refuse(self, status: int, why: str) -> None:
        self.answer(
            status, [("Content-Type", "text/plain; charset=utf-8")], f"{why}\n".encode(), keep_alive=False
        )

    def answer(
        self,
        status: int,
        headers: Sequence[tuple[str, str]],
        body: bytes = b"",
        keep_alive: bool = True,
        reason: str = "",
    ) -> None:
        """A whole answer."""
        length = [] if status == 204 else [("Content-Length", str(len(body)))]
        self.write(answer_head(status, [*headers, *length], reason, keep_alive) + body)
        if not keep_alive:
            self._reader = None
            self.transport.close()

    # -- as a tunnel

    def become_tunnel(self, format: Format, head: bytes, ws: bool = False) -> None:
        """The answer stays open from here on: nothing more is read but a WebSocket's frames."""
        self._format = format
        self._reader = None
        self._waiting = None
        if ws:
            self._ws = WsConnection(ConnectionType.SERVER)
        self.write(head)

    def open_tunnel(
        self, format: Format, scope: Scope, is_raw: bool, first: bytes, request: TunnelOpened
    ) -> None:
        """Send the first event, then whatever follows the place that was granted."""
        self.write(chunk(first) if format.is_chunked and not is_raw else first)
        opened = TunnelOpened("", self.address, request.place, request.journal)
        self.group = self._server.feed.open(self, format, scope, is_raw, opened)

    def refuse_tunnel(self, why: str, is_raw: bool) -> None:
        """It is a stream already: say inside it that it can't be had now, and close."""
        assert self._format is not None
        data = self._format.closing(why)
        self.write(data if is_raw else chunk(data) + b"0\r\n\r\n")
        self._is_ending = True
        self.transport.close()

    def write(self, data: bytes) -> None:
        """Send: straight into the socket while nothing waits before it.

        A transport collects writes until the end of the loop's turn, so that the first of thousands would wait for
        the last.
        """
        transport = self.transport
        if transport.get_write_buffer_size() or transport.is_closing():
            transport.write(data)
            return
        try:
            sent = write(self.fd, data)
        except OSError:
            sent = 0  # it is full, or gone: the transport deals with both
        if sent < len(data):
            transport.write(data[sent:])

    def end(self, why: str) -> None:
        """Say why in the tunnel's own format, and close; soon in any case."""
        if self._is_ending:
            return
        self._is_ending = True
        group = self.group
        self._leave()
        if self._format is not None and not self.transport.is_closing():
            data = self._format.closing(why)
            is_raw = not self._format.is_chunked if group is None else group.is_raw
            self.write(data if is_raw else chunk(data) + b"0\r\n\r\n")
        self.transport.close()
        self._server.loop.call_later(LINGER_S, self.transport.abort)

    def _leave(self) -> None:
        """It is no tunnel any more."""
        self._server.tunnels.receive(TunnelClosed(), self, 0.0)
        group, self.group = self.group, None
        if group is not None:
            self._server.feed.release(group)

    def _receive_frames(self, data: bytes) -> None:
        """A WebSocket's client: it may ask for a sign of life, and say goodbye."""
        assert self._ws is not None
        try:
            self._ws.receive_data(data)
            for event in self._ws.events():
                match event:
                    case Ping():
                        self.write(self._ws.send(event.response()))
                    case CloseConnection():
                        self.write(self._ws.send(event.response()))
                        self.transport.close()
                    case Message():
                        pass
                    case _:
                        pass
        except RemoteProtocolError as error:
            self.end(str(error))

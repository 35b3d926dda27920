"""One client's connection: its requests are answered one after the other, until one of them opens a tunnel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import write
from typing import Any, NamedTuple, cast

import httptools
from msgspec.structs import replace
from wsproto.utilities import RemoteProtocolError

from reknit.config import HttpSettings
from reknit.credentials import NO_CREDENTIALS
from reknit.gateway.access import Access
from reknit.gateway.client_quotas import RETRY_AFTER_S, ClientQuotas
from reknit.gateway.http.channels import Channels
from reknit.gateway.http.connections import ConnectionRegistry
from reknit.gateway.http.feed import TunnelFeed
from reknit.gateway.http.formats import TunnelFormat
from reknit.gateway.http.forwarded import TrustedProxies, read_proxy_header
from reknit.gateway.http.groups import TunnelConnection, TunnelGroup, chunk
from reknit.gateway.http.origins import OriginPolicy
from reknit.gateway.http.requests import HttpRequest, RequestReader, RequestRefused, answer_head
from reknit.gateway.http.room import TunnelRoom
from reknit.gateway.http.scopes import TunnelScope
from reknit.gateway.http.websocket import WebSocketReader
from reknit.protocol.tunnel.server import TunnelBlocked, TunnelClosed, TunnelOpened, TunnelServer
from reknit.transport.authorities import credentials_of
from reknit.trust.connection_counts import ConnectionCounts
from reknit.trust.identities import NOBODY, Identity
from reknit.trust.logins import Logins

LINGER_S = 2.0
"""How long a connection that is being closed may take to send its last bytes."""
PIPELINE_MAX = 64
HOLDS_CHARS_MAX = 300
TEXT = ("Content-Type", "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """The services that all connections of a server share: one object, as there may be very many connections."""

    settings: HttpSettings
    loop: asyncio.AbstractEventLoop
    connections: ConnectionRegistry
    room: TunnelRoom
    origins: OriginPolicy
    proxies: TrustedProxies
    tunnels: TunnelServer
    feed: TunnelFeed
    logins: Logins
    quota: ConnectionCounts
    quotas: ClientQuotas
    on_request: Callable[[HttpConnection, HttpRequest], None]
    """Answers a request. It calls `next_request` when that is done."""


class TunnelRefusal(NamedTuple):
    """Why a tunnel can't be opened now."""

    status: int
    """503 if the server has no room, 429 if its user is at a quota."""
    why: str


class HttpConnection(asyncio.Protocol, TunnelConnection):
    """A client's connection. As a tunnel it holds little more than its transport and its group."""

    __slots__ = (
        "_begun", "_channels", "_counted", "_format", "_frames", "_group", "_is_encrypted", "_is_ending", "_is_head",
        "_is_subscribed", "_peer", "_proof", "_reader", "_refusal", "_transport", "_waiting", "address", "answered",
        "certified", "fd", "opened_at", "services",
    )  # fmt: skip

    def __init__(self, services: HttpServices) -> None:
        self.services = services
        self._reader: RequestReader | None = None
        self._waiting: list[HttpRequest] | None = None
        """Requests that arrived while one is being answered; None if no request is being answered."""
        self._refusal: RequestRefused | None = None
        """Why nothing more is read; it is answered after the requests that came before."""
        self._is_head = False
        """The request that is being answered wants no body."""
        self._begun: bytes | None = None
        """The first bytes of a trusted proxy's connection, until it is known whether they are its header."""
        self._peer = ""
        """The other end of the connection. `address` is the client's, behind trusted proxies."""
        self._format: TunnelFormat | None = None
        self._frames: WebSocketReader | None = None
        """Of a WebSocket."""
        self._channels: Channels | None = None
        """The tunnels of a WebSocket."""
        self._is_ending = False
        self._group: TunnelGroup | None = None
        self._proof = NOBODY
        self._counted = ""
        """The identity that the tunnel counts for as a connection; empty if for none."""
        self._is_subscribed = False
        """Whether it counts as a subscription, too."""
        self.certified = NO_CREDENTIALS
        self.address = ""
        self.answered = 0
        """The status of the last answer."""
        self.opened_at = 0.0

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport
        self._transport = cast(asyncio.Transport, transport)
        self.fd: int = self._transport.get_extra_info("socket").fileno()
        self._is_encrypted = self._transport.get_extra_info("sslcontext") is not None
        peer = self._transport.get_extra_info("peername")
        self.address = self._peer = peer[0] if peer else "local"
        self.certified = credentials_of(self._transport)
        services = self.services
        if not services.room.has_room(self.fd):
            why = "the server has reached its limit of open files; try again later"
            self._answer_refusal(RequestRefused(503, why))
            return
        settings = services.settings
        self._transport.set_write_buffer_limits(settings.tunnel_bytes_max)
        self._reader = RequestReader(self._on_request, self._on_continue, settings.request_bytes_max)
        if services.proxies.is_trusted(self._peer):
            self._begun = b""
        self.opened_at = services.loop.time()
        services.connections.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._frames is not None:
            self._receive_frames(self._frames, data)
        elif self._reader is not None:
            try:
                self._reader.feed(data if self._begun is None else self._after_proxy_header(data))
            except RequestRefused as error:
                self._refuse(error)
            except httptools.HttpParserError as error:
                self._refuse(RequestRefused(400, f"not a valid HTTP/1 request: {error}"))

    def _after_proxy_header(self, data: bytes) -> bytes:
        """What follows a trusted proxy's header, which says who its client is. Raises `RequestRefused`."""
        assert self._begun is not None
        self._begun += data
        try:
            header = read_proxy_header(self._begun)
        except ValueError as error:
            raise RequestRefused(400, str(error)) from None
        if header is None:
            return b""
        begun, self._begun = self._begun, None
        self.address = self._peer = header.address or self._peer
        return begun[header.size :]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader = self._frames = None
        self._leave()
        self.services.connections.closed(self)

    def pause_writing(self) -> None:
        self._block(True)

    def resume_writing(self) -> None:
        self._block(False)

    def _block(self, is_full: bool) -> None:
        """The socket is full, or has room again."""
        services = self.services
        if self._channels is not None:
            self._channels.block(is_full)
            return
        services.tunnels.receive(TunnelBlocked(is_full), self, services.loop.time())
        if not is_full:
            services.feed.perform()

    # -- requests

    def _on_request(self, request: HttpRequest) -> None:
        if self._waiting is None:
            self._waiting = []
            self.services.connections.complete(self)
            self._begin(request)
        elif len(self._waiting) < PIPELINE_MAX:
            self._waiting.append(request)
        else:
            raise RequestRefused(400, "too many requests at once on one connection")

    def _begin(self, request: HttpRequest) -> None:
        """Answer a request."""
        self._is_head = request.method == "HEAD"
        scheme = "https" if self._is_encrypted else "http"
        proxies = self.services.proxies
        if proxies.is_trusted(self._peer):
            self.address = proxies.client(self._peer, request.headers.get("x-forwarded-for", ""))
            host, told = proxies.forwarded(request.headers)
            scheme = told or scheme
            if host:
                request.headers["host"] = host
        self.services.on_request(self, replace(request, scheme=scheme))

    def _on_continue(self) -> None:
        """A client waits before it sends a body. One that also sent requests before must not take it for an answer."""
        if self._waiting is None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def next_request(self) -> None:
        """A request was answered: continue with one that arrived meanwhile, or wait for one."""
        if self._waiting:
            self._begin(self._waiting.pop(0))
        elif self._refusal is not None and self._format is None:
            self._answer_refusal(self._refusal)
        elif self._reader is not None:
            self._waiting = None
            self.opened_at = self.services.loop.time()
            self.services.connections.awaits(self)

    def _refuse(self, refusal: RequestRefused) -> None:
        """Read nothing more. The requests before are answered first."""
        self._reader = None
        if self._waiting is None:
            self._answer_refusal(refusal)
        else:
            self._refusal = refusal

    def _answer_refusal(self, refusal: RequestRefused) -> None:
        self._is_head = False
        self.answer(refusal.status, [TEXT], _line(refusal.why), keep_alive=False)

    def answer_text(
        self, request: HttpRequest, status: int, text: str, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Answer a request with plain text."""
        headers = [TEXT, *headers, *self.services.origins.cors(request)]
        self.answer(status, headers, _line(text), request.keep_alive)

    def answer(
        self,
        status: int,
        headers: Sequence[tuple[str, str]],
        body: bytes = b"",
        keep_alive: bool = True,
        reason: str = "",
    ) -> None:
        """Send a complete answer."""
        self.answered = status
        length = [] if status in (204, 304) else [("Content-Length", str(len(body)))]
        self.write(
            answer_head(status, [*headers, *length], reason, keep_alive) + (b"" if self._is_head else body)
        )
        if not keep_alive:
            self._reader = None
            self._transport.close()

    # -- as a tunnel

    def become_tunnel(self, format: TunnelFormat, head: bytes) -> None:
        """The answer stays open from here on. Nothing more is read except a WebSocket's frames."""
        self._format = format
        self._reader = None
        self._waiting = None
        self.write(head)

    def become_websocket(
        self, user: Identity, format: TunnelFormat, channels: Channels, head: bytes, is_compressed: bool
    ) -> None:
        """The connection is a WebSocket from here on, with these channels."""
        self._proof = user
        self._channels = channels
        bytes_max = self.services.settings.request_bytes_max
        self._frames = WebSocketReader(self.write, bytes_max, is_compressed)
        self.become_tunnel(format, head)
        self.services.logins.add(self)
        self.awaits_channel(True)

    def awaits_channel(self, is_so: bool) -> None:
        """Whether a WebSocket has no channel: as a connection without a request, it is not kept for long."""
        connections = self.services.connections
        if not is_so:
            connections.complete(self)
        elif not self._is_ending and not self.is_closing:
            self.opened_at = self.services.loop.time()
            connections.awaits(self)

    def tunnel_refusal(self, user: Identity, is_websocket: bool = False) -> TunnelRefusal | None:
        """Why the connection can't become a tunnel of this user now; None if it can, and is one from now on.

        The channels of a WebSocket count as subscriptions of their own.
        """
        if self.is_closing:
            return TunnelRefusal(503, "the client has left")
        if why := self.services.room.refusal(self.fd, self.address):
            return TunnelRefusal(503, why)
        if why := self._count(user.name, not is_websocket):
            return TunnelRefusal(429, f"RESOURCE_EXHAUSTED: {why}")
        return None

    def _count(self, who: str, is_subscribed: bool) -> str:
        """Count a connection of an identity, and perhaps a subscription. Returns why it may not have them."""
        services = self.services
        if why := services.quota.enter(who, self.address):
            return why
        if is_subscribed and (why := services.quotas.subscribe(who)):
            services.quota.leave(who)
            return why
        self._counted, self._is_subscribed = who, is_subscribed
        return ""

    def answer_refusal(self, refusal: TunnelRefusal) -> None:
        """Answer a request for a tunnel that can't be opened now."""
        headers = [("Retry-After", str(RETRY_AFTER_S)), TEXT]
        self.answer(refusal.status, headers, _line(refusal.why), keep_alive=False)

    def open_tunnel(
        self,
        user: Identity,
        format: TunnelFormat,
        scope: TunnelScope,
        is_raw: bool,
        first: bytes,
        request: TunnelOpened,
    ) -> None:
        """Send the first event, then the events after the granted place."""
        self._proof = user
        self.write(chunk(first) if format.is_chunked and not is_raw else first)
        opened = TunnelOpened("", self.address, request.place, request.journal)
        self._group = self.services.feed.open(self, format, scope, is_raw, opened)
        if self._group is not None:
            self.services.logins.add(self)

    def describe(self, now: float) -> dict[str, Any]:
        """Who the client is, since when, and what it holds."""
        group = self._group
        tunnel = None if group is None else self.services.tunnels.tunnel(self)
        holds = "" if group is None else ", ".join(one.text for one in group.scope.patterns())
        return {
            "name": "",
            "identity": self._proof.name,
            "address": self.address,
            "kind": "request" if self._format is None else f"tunnel ({self._format.name})",
            "since_s": round(now - self.opened_at, 1),
            "holds": holds[:HOLDS_CHARS_MAX],
            "unsettled": 0,
            "unsent_bytes": self.waiting_bytes,
            "state": "open" if tunnel is None else tunnel.state.name.lower(),
        }

    @property
    def proof(self) -> Identity:
        """Whose tunnel it is."""
        return self._proof

    def expel(self, why: str) -> None:
        """The user's proof was revoked, or has expired."""
        self.end(f"UNAUTHENTICATED: {why}")

    def review(self, access: Access) -> None:
        """The rules have changed: end a tunnel that would carry other events now."""
        if self._channels is not None:
            self._channels.review(access)
        if self._group is not None and not self._group.scope.is_same(access.readable(self._proof.name)):
            text = f"the rules for {self._proof.name} have changed; reconnect for what it may read now"
            self.end(f"PERMISSION_DENIED: {text}")

    def refuse_tunnel(self, why: str, is_raw: bool) -> None:
        """The answer has begun: send the reason inside the tunnel, and close."""
        assert self._format is not None
        data = self._format.closing(why)
        self.write(data if is_raw else chunk(data) + b"0\r\n\r\n")
        self._is_ending = True
        self._transport.close()

    def write(self, data: bytes, size: int = 0) -> None:
        """Send: straight to the socket unless earlier bytes are still buffered, or the transport encrypts them.

        A transport collects writes until the end of the event loop's turn: the first of thousands would wait for the
        last. Nothing is sent on a connection that is closed: its client left before the answer was ready.
        """
        transport = self._transport
        if transport.is_closing():
            return
        if self._is_encrypted or transport.get_write_buffer_size():
            transport.write(data)
            self.services.connections.filled(self)
            return
        try:
            sent = write(self.fd, data)
        except OSError:
            sent = 0  # the socket is full or closed: the transport deals with both
        if sent < len(data):
            transport.write(data[sent:])
            self.services.connections.filled(self)

    @property
    def waiting_bytes(self) -> int:
        """What was sent to the client and not taken yet."""
        return self._transport.get_write_buffer_size()

    @property
    def is_closing(self) -> bool:
        """Whether the connection is being closed."""
        return self._transport.is_closing()

    def end(self, why: str) -> None:
        """Send the reason in the tunnel's own format, and close. Abort after `LINGER_S`."""
        if self._is_ending:
            return
        self._is_ending = True
        group = self._group
        self._leave()
        if self._format is not None and not self._transport.is_closing():
            data = self._format.closing(why)
            is_raw = not self._format.is_chunked if group is None else group.is_raw
            self.write(data if is_raw else chunk(data) + b"0\r\n\r\n")
        self._transport.close()
        self.services.loop.call_later(LINGER_S, self._transport.abort)

    def close(self) -> None:
        """Close when all is sent."""
        if self._channels is not None:
            self.end("no channel was opened")
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _leave(self) -> None:
        """The connection is no longer a tunnel."""
        channels, self._channels = self._channels, None
        if channels is not None:
            channels.close()
        if self._counted:
            self.services.quota.leave(self._counted)
            if self._is_subscribed:
                self.services.quotas.unsubscribe(self._counted)
            self._counted = ""
        self.services.logins.remove(self)
        self.services.tunnels.receive(TunnelClosed(), self, 0.0)
        group, self._group = self._group, None
        if group is not None:
            self.services.feed.release(group)

    def _receive_frames(self, frames: WebSocketReader, data: bytes) -> None:
        """What a WebSocket's client says."""
        try:
            for message in frames.feed(data):
                if self._channels is None:
                    return
                if why := self._channels.receive(message):
                    raise RemoteProtocolError(why)
            if frames.is_closed:
                self._transport.close()
        except RemoteProtocolError as error:
            self.end(str(error))


def _line(text: str) -> bytes:
    """A line of an answer. It may quote bytes of the request that are not UTF-8."""
    return f"{text}\n".encode("utf-8", "surrogateescape")

"""The same journal for today's clients: Server-Sent Events and WebSocket.

A browser can't read an answer's headers, so the first event says whether it recovered. It also never gets a 5xx
or a 204 here, after which it would give up for good: what can't be had now is said inside the stream.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from reknit.errors import InvalidTopic
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.formats import FORMATS, Format
from reknit.gateway.http.requests import Request, answer_head, first, parse_form
from reknit.gateway.http.scope import PatternScope
from reknit.protocol.tunnel.reconnect import ReconnectGranted, live, since_checkpoint
from reknit.protocol.tunnel.server import TunnelOpened
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.gateway.http.server import HttpServer

_WS_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Streams:
    """Opens streams on the topics that match a pattern."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def sse(self, connection: HttpConnection, request: Request) -> None:
        """`GET /sse?topic=PATTERN`, going on behind `Last-Event-ID`: the header first, then the query."""
        if request.method != "GET":
            self._server.say(connection, request, 501, "a stream is opened with GET")
            return
        scope = self._scope(connection, request)
        if scope is None:
            return
        form = parse_form(request.query)
        query = first(form, "Last-Event-ID") or first(form, "lastEventId") or first(form, "from")
        place = request.headers.get("last-event-id", "") or query
        headers = [
            ("Content-Type", FORMATS["sse"].content_type),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
            *self._server.cors(request),
        ]
        is_raw = request.version == "1.0"
        if not is_raw:
            headers.append(("Transfer-Encoding", "chunked"))
        head = answer_head(200, headers, keep_alive=False)
        self._open(connection, FORMATS["sse"], scope, place, head, is_raw)

    async def websocket(self, connection: HttpConnection, request: Request) -> None:
        """`GET /ws?topic=PATTERN&format=json|binary&from=CHECKPOINT`."""
        key = request.headers.get("sec-websocket-key", "")
        if request.headers.get("upgrade", "").lower() != "websocket" or not key:
            self._server.say(connection, request, 400, "/ws is for WebSocket: ask for an upgrade")
            return
        if not self._server.is_allowed_origin(request):
            self._server.say(
                connection, request, 403, "pages of this site may not use this node (http.origins)"
            )
            return
        scope = self._scope(connection, request)
        if scope is None:
            return
        form = parse_form(request.query)
        format = FORMATS.get(f"ws-{first(form, 'format', 'json')}")
        if format is None:
            self._server.say(connection, request, 400, "format is json or binary")
            return
        accept = base64.b64encode(hashlib.sha1((key + _WS_GUID).encode()).digest()).decode()
        upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
        self._open(connection, format, scope, first(form, "from"), answer_head(101, upgrade), True)

    def _scope(self, connection: HttpConnection, request: Request) -> PatternScope | None:
        """What the user asks for and may read; None where that was refused."""
        access = self._server.access
        user = access.who(request.token)
        if user is None:
            self._server.say(connection, request, 403, "the token is not known")
            return None
        try:
            pattern = Pattern(first(parse_form(request.query), "topic").strip("/"))
        except InvalidTopic as error:
            self._server.say(connection, request, 400, f"{error}; write ?topic=PATTERN")
            return None
        readable = access.readable(user)
        if readable is not None and not any(pattern.intersects(one) for one in readable):
            self._server.say(connection, request, 403, f"{user} may not read {pattern}")
            return None
        return PatternScope(pattern, readable)

    def _open(
        self,
        connection: HttpConnection,
        format: Format,
        scope: PatternScope,
        checkpoint: str,
        head: bytes,
        is_raw: bool,
    ) -> None:
        server = self._server
        connection.become_tunnel(format, head, ws=not format.is_chunked)
        if why := server.refusal(connection):
            connection.refuse_tunnel(why, is_raw)
            return
        held = server.held(scope)
        granted = since_checkpoint(checkpoint, held) if checkpoint else live(held)
        why = ""
        if isinstance(granted, ReconnectGranted):
            state = "recovered" if granted.recovered else "live"
        else:
            state, why, granted = "lost", granted.why, live(held)
        retry_ms = server.settings.retry_ms * server.rng.uniform(0.5, 1.5)
        opened = {
            "state": state,
            "recovered": state == "recovered",
            "retry": f"{retry_ms:.0f}",
            "checkpoint": granted.place.text,
        }
        connection.open_tunnel(
            format, scope, is_raw, format.status(opened, why), TunnelOpened("", "", granted.place)
        )

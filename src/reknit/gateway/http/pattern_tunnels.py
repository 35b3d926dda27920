"""Tunnels on the topics that match a pattern, for today's clients: Server-Sent Events and WebSocket.

A browser's EventSource can't read an answer's headers, so the first event says whether the client recovered. After a
429, a 5xx or a 204 it would never reconnect. If a tunnel can't be opened now, the answer is therefore 200, and the
reason is sent inside the tunnel. A WebSocket of somebody who is at a quota is refused with 429.
"""

from __future__ import annotations

from reknit.config import HttpSettings
from reknit.gateway.http.channels import ONLY, Channels
from reknit.gateway.http.connection import HttpConnection, TunnelRefusal
from reknit.gateway.http.formats import FORMATS
from reknit.gateway.http.origins import FORBIDDEN, OriginPolicy
from reknit.gateway.http.patterns import PatternOpenings, PatternRefused
from reknit.gateway.http.requests import HttpRequest, answer_head, first, parse_form
from reknit.gateway.http.scopes import PatternScope
from reknit.gateway.http.websocket import HANDSHAKE, handshake, handshake_refusal, offers_compression
from reknit.gateway.http.websocket_formats import WEBSOCKET_FORMATS
from reknit.protocol.tunnel.server import TunnelOpened


class PatternTunnels:
    """Opens tunnels over SSE and WebSocket."""

    def __init__(self, settings: HttpSettings, *, origins: OriginPolicy, openings: PatternOpenings) -> None:
        self._settings = settings
        self._origins = origins
        self._openings = openings

    async def sse(self, connection: HttpConnection, request: HttpRequest) -> None:
        """`GET /sse?topic=PATTERN`. Resumes after `Last-Event-ID`, from the header or else from the query."""
        if request.method != "GET":
            connection.answer_text(request, 501, "use GET to open a tunnel")
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
            *self._origins.cors(request),
        ]
        is_raw = request.version == "1.0"
        if not is_raw:
            headers.append(("Transfer-Encoding", "chunked"))
        head = answer_head(200, headers, keep_alive=False)
        refused = connection.tunnel_refusal(request.identity)
        format = FORMATS["sse"]
        connection.become_tunnel(format, head)
        if refused:
            connection.refuse_tunnel(refused.why, is_raw)
            return
        opening = self._openings.opening(scope, place)
        opened = TunnelOpened("", "", opening.place)
        status = format.status(opening.elements, opening.why)
        connection.open_tunnel(request.identity, format, scope, is_raw, status, opened)

    async def websocket(self, connection: HttpConnection, request: HttpRequest) -> None:
        """`GET /ws?topic=PATTERN&format=json|binary&from=CHECKPOINT&credit=BYTES`; without a topic, `channels.py`."""
        if not self._origins.is_allowed(request):
            connection.answer_text(request, 403, FORBIDDEN)
            return
        form = parse_form(request.query)
        scope, topic = None, first(form, "topic")
        if topic or request.refusal:
            scope = self._scope(connection, request)
            if scope is None:
                return
        if refused := handshake_refusal(request):
            connection.answer_text(request, *refused, HANDSHAKE)
            return
        is_compressed = self._settings.compress and offers_compression(request)
        format = WEBSOCKET_FORMATS.get((first(form, "format", "json"), is_compressed))
        credit = first(form, "credit", "0")
        if format is None:
            connection.answer_text(request, 400, "the parameter format must be json or binary")
            return
        if not (credit.isascii() and credit.isdecimal() and len(credit) < 16):
            connection.answer_text(request, 400, "the parameter credit must be a number of bytes")
            return
        refusal = connection.tunnel_refusal(request.identity, is_websocket=True)
        channels = Channels(
            connection,
            connection.services,
            self._openings,
            request.identity.name,
            format,
            self._settings.channels_max,
        )
        if scope is not None and refusal is None and (why := channels.reserve()):
            refusal = TunnelRefusal(429, f"RESOURCE_EXHAUSTED: {why}")
        if refusal and refusal.status == 429:
            connection.answer_refusal(refusal)
            return
        head = answer_head(101, handshake(request, is_compressed))
        connection.become_websocket(request.identity, format, channels, head, is_compressed)
        if refusal:
            connection.refuse_tunnel(refusal.why, is_raw=True)
        elif scope is not None:
            channels.open(ONLY, scope, first(form, "from"), int(credit))

    def _scope(self, connection: HttpConnection, request: HttpRequest) -> PatternScope | None:
        """The requested topics that the user may read; None if the request was refused."""
        if request.refusal:
            connection.answer_text(request, 403, request.refusal)
            return None
        try:
            return self._openings.scope(request.identity.name, first(parse_form(request.query), "topic"))
        except PatternRefused as error:
            hint = "; write ?topic=PATTERN" if error.status == 400 else ""
            connection.answer_text(request, error.status, f"{error.why}{hint}")
            return None

"""Tunnels on the topics that match a pattern, for today's clients: Server-Sent Events and WebSocket.

A browser's EventSource can't read an answer's headers, so the first event says whether the client recovered. After a
429, a 5xx or a 204 it would never reconnect. If a tunnel can't be opened now, the answer is therefore 200, and the
reason is sent inside the tunnel. A WebSocket of somebody who is at a quota is refused with 429.
"""

from __future__ import annotations

import base64
import hashlib

from reknit import environment
from reknit.config import HttpSettings
from reknit.errors import InvalidTopic
from reknit.gateway.access import Access
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.formats import FORMATS, TunnelFormat
from reknit.gateway.http.origins import FORBIDDEN, OriginPolicy
from reknit.gateway.http.promises import JournalPromises
from reknit.gateway.http.requests import HttpRequest, answer_head, first, parse_form
from reknit.gateway.http.scopes import PatternScope
from reknit.protocol.tunnel.reconnect import ReconnectGranted, live, since_checkpoint
from reknit.protocol.tunnel.server import TunnelOpened
from reknit.topic import Pattern
from reknit.trust.identities import Identity

KEY_BYTES = 16
_WS_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


HANDSHAKE = (("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"))
"""What a client may do better, in the answer to one whose handshake is refused."""


def handshake_refusal(request: HttpRequest) -> tuple[int, str] | None:
    """Why a request can't become a WebSocket: the status of the answer, and its text."""
    headers = request.headers
    if headers.get("upgrade", "").lower() != "websocket" or "connection" not in headers:
        return 426, "/ws is for WebSocket; request an upgrade. A proxy in between has to pass it on."
    if (version := headers.get("sec-websocket-version", "")) != "13":
        return 426, f"WebSocket version {version[:20]!r} is not spoken here; version 13 is"
    try:
        size = len(base64.b64decode(headers.get("sec-websocket-key", ""), validate=True))
    except ValueError:
        size = 0
    if size != KEY_BYTES:
        return 400, f"Sec-WebSocket-Key must be {KEY_BYTES} bytes in base64"
    return None


class PatternTunnels:
    """Opens tunnels over SSE and WebSocket."""

    def __init__(
        self, settings: HttpSettings, *, access: Access, origins: OriginPolicy, promises: JournalPromises
    ) -> None:
        self._settings = settings
        self._access = access
        self._origins = origins
        self._promises = promises
        self._rng = environment.make_random()

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
        self._open(connection, request.identity, FORMATS["sse"], scope, place, head, is_raw)

    async def websocket(self, connection: HttpConnection, request: HttpRequest) -> None:
        """`GET /ws?topic=PATTERN&format=json|binary&from=CHECKPOINT`."""
        if not self._origins.is_allowed(request):
            connection.answer_text(request, 403, FORBIDDEN)
            return
        scope = self._scope(connection, request)
        if scope is None:
            return
        if refused := handshake_refusal(request):
            connection.answer_text(request, *refused, HANDSHAKE)
            return
        form = parse_form(request.query)
        format = FORMATS.get(f"ws-{first(form, 'format', 'json')}")
        if format is None:
            connection.answer_text(request, 400, "the parameter format must be json or binary")
            return
        key = request.headers["sec-websocket-key"]
        accept = base64.b64encode(hashlib.sha1((key + _WS_GUID).encode()).digest()).decode()
        upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
        head = answer_head(101, upgrade)
        self._open(connection, request.identity, format, scope, first(form, "from"), head, True)

    def _scope(self, connection: HttpConnection, request: HttpRequest) -> PatternScope | None:
        """The requested topics that the user may read; None if the request was refused."""
        if request.refusal:
            connection.answer_text(request, 403, request.refusal)
            return None
        user = request.identity.name
        try:
            pattern = Pattern(first(parse_form(request.query), "topic").strip("/"))
        except InvalidTopic as error:
            connection.answer_text(request, 400, f"{error}; write ?topic=PATTERN")
            return None
        readable = self._access.readable(user)
        if readable is not None and not any(pattern.intersects(one) for one in readable):
            connection.answer_text(request, 403, f"{user} may not read {pattern}")
            return None
        return PatternScope(pattern, readable)

    def _open(
        self,
        connection: HttpConnection,
        user: Identity,
        format: TunnelFormat,
        scope: PatternScope,
        checkpoint: str,
        head: bytes,
        is_raw: bool,
    ) -> None:
        refused = connection.tunnel_refusal(user)
        if refused and refused.status == 429 and not format.is_chunked:
            connection.answer_refusal(refused)
            return
        connection.become_tunnel(format, head, ws=not format.is_chunked)
        if refused:
            connection.refuse_tunnel(refused.why, is_raw)
            return
        held = self._promises.held(scope)
        granted = since_checkpoint(checkpoint, held) if checkpoint else live(held)
        why = ""
        if isinstance(granted, ReconnectGranted):
            state = "recovered" if granted.recovered else "live"
        else:
            state, why, granted = "lost", granted.why, live(held)
        retry_ms = self._settings.retry_ms * self._rng.uniform(0.5, 1.5)
        opened = {
            "state": state,
            "recovered": state == "recovered",
            "retry": f"{retry_ms:.0f}",
            "checkpoint": granted.place.text,
            "heartbeat_s": self._settings.heartbeat_s,
        }
        first_event, opening = format.status(opened, why), TunnelOpened("", "", granted.place)
        connection.open_tunnel(user, format, scope, is_raw, first_event, opening)

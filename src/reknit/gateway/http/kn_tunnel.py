"""A mod_pubsub tunnel: the status event first, then what was missed, then what comes."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from reknit.errors import Gone, InvalidTopic
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.formats import Format, Js
from reknit.gateway.http.requests import Form, Request, answer_head, first
from reknit.gateway.http.scope import PatternScope, Scope, TopicScope
from reknit.gateway.http.subtopics import Subtopics, SubtopicsScope
from reknit.gateway.http.topics import SUBTOPICS, to_topic
from reknit.protocol.tunnel.elements import CHECKPOINT, ID, LOCATION, SCHEME, STATUS, TIMEOUT, refusal
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.reconnect import (
    ReconnectDenied,
    ReconnectGranted,
    live,
    since_age,
    since_checkpoint,
)
from reknit.protocol.tunnel.server import TunnelOpened
from reknit.protocol.tunnel.topic_routes import is_journal
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.gateway.http.server import HttpServer

RETRY_AFTER_S = 10


class KnTunnel:
    """Opens tunnels at `/kn`."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._subtopics = Subtopics(server.node.journal, server.feed)

    def plain_scope(self, pattern: Pattern) -> Scope:
        return PatternScope(pattern, None)

    def open(
        self, connection: HttpConnection, request: Request, form: Form, format: Format, name: str
    ) -> None:
        """Make the connection a tunnel, or say with a status event why not."""
        granted = self._granted(request, form, name)
        if isinstance(granted, ReconnectDenied):
            self._deny(connection, request, form, format, granted)
            return
        scope, place = granted
        if why := self._server.refusal(connection):
            # no status event: this is no word on whether a reconnect is possible, only that it can't be now
            headers = [("Retry-After", str(RETRY_AFTER_S)), ("Content-Type", "text/plain; charset=utf-8")]
            connection.answer(503, headers, f"{why}\n".encode(), keep_alive=False)
            return
        is_raw = request.version == "1.0"
        connection.become_tunnel(format, self._head(request, format, is_raw))
        topic = getattr(scope, "topic", "")
        journal = topic if is_journal(topic) else ""
        status = format.status(self._status(form, scope, place))
        prelude = b"<!DOCTYPE html>\n" if isinstance(format, Js) else b""
        extra = self._subtopics.population(scope, format)
        connection.open_tunnel(
            format, scope, is_raw, prelude + status + extra, TunnelOpened("", "", place, journal)
        )

    def _head(self, request: Request, format: Format, is_raw: bool) -> bytes:
        headers = [
            ("Content-Type", format.content_type),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
            *self._server.cors(request),
        ]
        if not is_raw:
            headers.append(("Transfer-Encoding", "chunked"))
        return answer_head(200, headers, "Watching topic", keep_alive=False)

    def _status(self, form: Form, scope: Scope, place: JournalPlace) -> dict[str, str]:
        settings = self._server.settings
        elements = {
            STATUS: "200 Watching topic",
            LOCATION: first(form, "kn_status_from"),
            ID: f"{int(time.time())}_{secrets.token_hex(8)}",
        }
        if isinstance(scope, SubtopicsScope):
            return elements  # nothing is promised: who reconnects asks anew
        return elements | {SCHEME: settings.scheme, TIMEOUT: f"{settings.grace_s:g}", CHECKPOINT: place.text}

    def _deny(
        self,
        connection: HttpConnection,
        request: Request,
        form: Form,
        format: Format,
        denied: ReconnectDenied,
    ) -> None:
        elements = {STATUS: denied.status, LOCATION: first(form, "kn_status_from")}
        body = format.status(elements, denied.why)
        headers = [("Content-Type", format.content_type), *self._server.cors(request)]
        code, _, reason = denied.status.partition(" ")
        connection.answer(int(code), headers, body, request.keep_alive, reason)

    # -- where it begins

    def _granted(
        self, request: Request, form: Form, name: str
    ) -> tuple[Scope, JournalPlace] | ReconnectDenied:
        access = self._server.access
        user = access.who(request.token)
        if user is None:
            return ReconnectDenied("403 Forbidden", "the token is not known")
        try:
            topic = to_topic(name, f"http://{request.headers.get('host', '')}/kn")
        except InvalidTopic as error:
            return ReconnectDenied("400 Bad Request", str(error))
        if why := refusal(name for name, value in form if value):
            return ReconnectDenied("400 Bad Request", why)
        readable = access.readable(user)
        if readable is not None and not any(one.matches(topic) for one in readable):
            return ReconnectDenied("403 Forbidden", f"{user} may not read /{topic}")
        if topic.rpartition("/")[2] == SUBTOPICS:
            return SubtopicsScope(topic.rpartition("/")[0]), JournalPlace(
                self._server.node.epoch, self._server.tunnels.position
            )
        scope = TopicScope(topic, self._server.router.routes, readable)
        granted = self._place(form, scope)
        return granted if isinstance(granted, ReconnectDenied) else (scope, granted.place)

    def _place(self, form: Form, scope: TopicScope) -> ReconnectGranted | ReconnectDenied:
        held = self._server.held(scope)
        checkpoint, age, count = (
            first(form, f"do_{name}") for name in ("since_checkpoint", "max_age", "max_n")
        )
        try:
            age_s = float(age) if age else float("inf") if count else None
            count_max = int(count) if count else None
        except ValueError:
            return ReconnectDenied(
                "400 Bad Request", "do_max_age is a number of seconds or infinity, do_max_n a number"
            )
        if checkpoint:
            granted = since_checkpoint(checkpoint, held)
        elif age_s is not None and age_s == age_s and age_s >= 0:
            granted = since_age(age_s, self._server.settings.grace_s, held)
        else:
            granted = live(held)
        if count_max is not None and isinstance(granted, ReconnectGranted):
            granted = ReconnectGranted(self._last(scope, granted.place, count_max), granted.recovered)
        return granted

    def _last(self, scope: TopicScope, place: JournalPlace, count: int) -> JournalPlace:
        """The place from which on there are at most `count` events."""
        journal, edge = self._server.node.journal, self._server.tunnels.position
        found: list[tuple[int, int, int]] = []
        position, skip = max(place.position, journal.start), place.index
        while position < edge:
            try:
                run = journal.read(position, edge)
            except Gone:
                position = journal.start
                continue
            for entry in run.entries:
                times = len(scope.locations(entry.head.topic, entry.position))
                if times:
                    found.append((entry.position, entry.head.count - skip, skip))
                skip = 0
            position = run.next_position
        for at, events, skip in reversed(found):
            if count <= events:
                index = skip + events - count
                return JournalPlace(place.epoch, at, index) if count else JournalPlace(place.epoch, edge)
            count -= events
        return place if found else JournalPlace(place.epoch, edge)

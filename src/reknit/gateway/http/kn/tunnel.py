"""mod_pubsub tunnels: the status event first, then what the client missed, then new events."""

from __future__ import annotations

import math

from reknit.config import HttpSettings
from reknit.errors import Gone, InvalidTopic
from reknit.gateway.access import Access
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.feed import TunnelFeed
from reknit.gateway.http.formats import JsFormat, TunnelFormat
from reknit.gateway.http.kn.parameters import age_of, count_of
from reknit.gateway.http.kn.router import KnRouter
from reknit.gateway.http.kn.status import BAD_REQUEST, FORBIDDEN, new_id
from reknit.gateway.http.kn.subtopics import Subtopics, SubtopicsScope
from reknit.gateway.http.kn.topics import SUBTOPICS, to_topic
from reknit.gateway.http.origins import OriginPolicy
from reknit.gateway.http.promises import JournalPromises
from reknit.gateway.http.requests import Form, HttpRequest, answer_head, first
from reknit.gateway.http.scopes import TopicScope, TunnelScope
from reknit.protocol.tunnel.elements import (
    CHECKPOINT,
    HEARTBEAT,
    ID,
    LOCATION,
    SCHEME,
    STATUS,
    TIMEOUT,
    refusal,
)
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
from reknit.store.journal import Journal


class KnTunnels:
    """Opens tunnels at `/kn`."""

    def __init__(
        self,
        settings: HttpSettings,
        *,
        journal: Journal,
        feed: TunnelFeed,
        access: Access,
        origins: OriginPolicy,
        router: KnRouter,
        promises: JournalPromises,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._feed = feed
        self._access = access
        self._origins = origins
        self._router = router
        self._promises = promises
        self._subtopics = Subtopics(journal, feed)

    def open(
        self, connection: HttpConnection, request: HttpRequest, form: Form, format: TunnelFormat, name: str
    ) -> None:
        """Make the connection a tunnel, or answer with a status event that says why not."""
        granted = self._granted(request, form, name)
        if isinstance(granted, ReconnectDenied):
            self._deny(connection, request, form, format, granted)
            return
        scope, place = granted
        if refused := connection.tunnel_refusal(request.identity):
            # no status event: it would say whether a reconnect is possible, and that is not known now
            connection.answer_refusal(refused)
            return
        is_raw = request.version == "1.0"
        connection.become_tunnel(format, self._head(request, format, is_raw))
        topic = scope.topic if isinstance(scope, TopicScope) else ""
        journal = topic if is_journal(topic) else ""
        status = format.status(self._status(form, scope, place))
        prelude = b"<!DOCTYPE html>\n" if isinstance(format, JsFormat) else b""
        extra = self._subtopics.population(scope, format)
        opening = TunnelOpened("", "", place, journal)
        connection.open_tunnel(request.identity, format, scope, is_raw, prelude + status + extra, opening)

    def _head(self, request: HttpRequest, format: TunnelFormat, is_raw: bool) -> bytes:
        headers = [
            ("Content-Type", format.content_type),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
            *self._origins.cors(request),
        ]
        if not is_raw:
            headers.append(("Transfer-Encoding", "chunked"))
        return answer_head(200, headers, "Watching topic", keep_alive=False)

    def _status(self, form: Form, scope: TunnelScope, place: JournalPlace) -> dict[str, str]:
        settings = self._settings
        elements = {
            STATUS: "200 Watching topic",
            LOCATION: first(form, "kn_status_from"),
            ID: new_id(),
            HEARTBEAT: f"{settings.heartbeat_s:g}",
        }
        if isinstance(scope, SubtopicsScope):
            return elements  # nothing is promised: a client that reconnects gets all names again
        return elements | {SCHEME: settings.scheme, TIMEOUT: f"{settings.grace_s:g}", CHECKPOINT: place.text}

    def _deny(
        self,
        connection: HttpConnection,
        request: HttpRequest,
        form: Form,
        format: TunnelFormat,
        denied: ReconnectDenied,
    ) -> None:
        elements = {STATUS: denied.status, LOCATION: first(form, "kn_status_from")}
        body = format.status(elements, denied.why)
        headers = [("Content-Type", format.content_type), *self._origins.cors(request)]
        code, _, reason = denied.status.partition(" ")
        connection.answer(int(code), headers, body, request.keep_alive, reason)

    # -- where a tunnel begins

    def _granted(
        self, request: HttpRequest, form: Form, name: str
    ) -> tuple[TunnelScope, JournalPlace] | ReconnectDenied:
        if request.refusal:
            return ReconnectDenied(FORBIDDEN, request.refusal)
        user = request.identity.name
        try:
            topic = to_topic(name, f"{request.scheme}://{request.headers.get('host', '')}/kn")
        except InvalidTopic as error:
            return ReconnectDenied(BAD_REQUEST, str(error))
        if why := refusal(name for name, value in form if value):
            return ReconnectDenied(BAD_REQUEST, why)
        readable = self._access.readable(user)
        if readable is not None and not any(one.matches(topic) for one in readable):
            return ReconnectDenied(FORBIDDEN, f"{user} may not read /{topic}")
        if topic.rpartition("/")[2] == SUBTOPICS:
            place = JournalPlace(self._feed.epoch, self._feed.position)
            return SubtopicsScope(topic.rpartition("/")[0]), place
        scope = TopicScope(topic, self._router.routes, readable)
        granted = self._place(form, scope)
        return granted if isinstance(granted, ReconnectDenied) else (scope, granted.place)

    def _place(self, form: Form, scope: TopicScope) -> ReconnectGranted | ReconnectDenied:
        held = self._promises.held(scope)
        try:
            age_s, count_max = age_of(form), count_of(form)
        except ValueError as error:
            return ReconnectDenied(BAD_REQUEST, str(error))
        if checkpoint := first(form, "do_since_checkpoint"):
            granted = since_checkpoint(checkpoint, held)
        elif age_s is not None or count_max is not None:
            granted = since_age(math.inf if age_s is None else age_s, self._settings.grace_s, held)
        else:
            granted = live(held)
        if count_max is not None and isinstance(granted, ReconnectGranted):
            granted = ReconnectGranted(self._last(scope, granted.place, count_max), granted.recovered)
        return granted

    def _last(self, scope: TopicScope, place: JournalPlace, count: int) -> JournalPlace:
        """The earliest place after which there are at most `count` events."""
        journal, edge = self._journal, self._feed.position
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

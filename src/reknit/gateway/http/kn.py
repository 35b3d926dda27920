"""mod_pubsub at `/kn`: notify, route, tunnel, batch, whoami, noop, help.

A request gives a status event; the HTTP status line says the same. A route without a destination is a tunnel: the
answer itself stays open, the status first, then what was missed, then what comes.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from reknit.errors import InvalidTopic, ReknitError
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.formats import FORMATS, Format
from reknit.gateway.http.inlet import Kept
from reknit.gateway.http.kn_tunnel import KnTunnel
from reknit.gateway.http.requests import Form, Request, first, parse_form
from reknit.gateway.http.topics import SUBTOPICS, to_topic
from reknit.protocol.tunnel.elements import (
    CONTROL,
    EXPIRES,
    ID,
    LOCATION,
    PAYLOAD,
    ROUTE,
    STATUS,
    TIME,
    fingerprint,
    is_hop_by_hop,
    refusal,
)
from reknit.protocol.tunnel.reconnect import ReconnectDenied, since_age, since_checkpoint
from reknit.protocol.tunnel.topic_routes import ROUTES_TOPIC, TopicRoute, is_journal
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.gateway.http.server import HttpServer

SQUASHED_MAX: Final = 100_000
BATCH_MAX: Final = 1_000
HELP: Final = """<!DOCTYPE html>
<title>/kn</title>
<p>Parameters come in the query or as a form, separated by <code>;</code> or <code>&amp;</code>.
<dl>
<dt>do_method=notify<dd>post an event to kn_to
<dt>do_method=route<dd>route kn_from to kn_to; without kn_to the answer is a tunnel, with an empty one the route goes
<dt>do_method=batch<dd>several requests, each in a kn_batch
<dt>do_method=whoami<dd>who the server takes you for
<dt>do_method=noop<dd>nothing
<dt>do_method=help<dd>this
</dl>
<p>do_max_age, do_max_n and do_since_checkpoint say what a route begins with, kn_response_format=simple or js how
events look.
"""


class Answer(msgspec.Struct, frozen=True):
    """A status event to be."""

    status: str
    text: str = ""
    elements: dict[str, str] = {}

    @property
    def code(self) -> int:
        return int(self.status[:3])

    @property
    def reason(self) -> str:
        return self.status[4:]


class Kn:
    """Answers requests to `/kn`."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._tunnel = KnTunnel(server)
        self._squashed: OrderedDict[tuple[str, str], tuple[str, Kept]] = OrderedDict()
        """The newest event by topic and kn_id: an identical repeat is squashed."""

    async def answer(self, connection: HttpConnection, request: Request) -> None:
        """A request, a whole one or one that becomes a tunnel."""
        if request.method not in ("GET", "POST"):
            self._server.say(connection, request, 501, "use GET or POST")
            return
        form = parse_form(request.query) if request.method == "GET" else parse_form(request.body)
        method = first(form, "do_method") or self._default(request, form)
        format = FORMATS.get(first(form, "kn_response_format", "js"))
        if format is None or format.name not in ("simple", "js"):
            text = "kn_response_format is simple or js"
            self._reply(connection, request, FORMATS["simple"], form, [Answer("400 Bad Request", text)])
        elif method == "help":
            headers = [("Content-Type", "text/html; charset=utf-8"), *self._server.cors(request)]
            connection.answer(200, headers, HELP.encode(), request.keep_alive)
        elif method == "whoami":
            self._whoami(connection, request)
        elif method == "route" and self._is_tunnel(form):
            self._tunnel.open(connection, request, form, format, self._from(request, form))
        else:
            answers = await self._answers(request, form, method)
            await self._send(connection, request, format, form, answers)

    def _default(self, request: Request, form: Form) -> str:
        """ "GET with parameters route, POST notify, none help." """
        if not [name for name, _ in form if name != "token"]:
            return "help"
        return "route" if request.method == "GET" else "notify"

    def _is_tunnel(self, form: Form) -> bool:
        """An absent `kn_to` is a tunnel."""
        to = next((value for name, value in form if name == "kn_to"), None)
        return to is None or to.startswith("javascript:")

    def _base(self, request: Request) -> str:
        return f"http://{request.headers.get('host', '')}/kn"

    def _from(self, request: Request, form: Form) -> str:
        """Path info is the default `kn_from`."""
        return first(form, "kn_from") or request.path.removeprefix("/kn")

    def _whoami(self, connection: HttpConnection, request: Request) -> None:
        user = self._server.access.who(request.token) or "anonymous"
        shown = "Anonymous User" if user == "anonymous" else user
        pairs = {"kn_userid": user, "kn_displayname": shown, "kn_server": "/kn"}
        body = "".join(f"window.{name} = {json.dumps(value)};\n" for name, value in pairs.items())
        headers = [("Content-Type", "text/javascript; charset=utf-8"), *self._server.cors(request)]
        connection.answer(200, headers, body.encode(), request.keep_alive)

    # -- answers

    async def _answers(self, request: Request, form: Form, method: str) -> list[Answer]:
        if not self._server.is_allowed_origin(request):
            return [Answer("403 Forbidden", "pages of this site may not use this node (http.origins)")]
        user = self._server.access.who(request.token)
        if user is None:
            return [Answer("403 Forbidden", "the token is not known")]
        if method != "batch":
            return [await self._one(request, form, method, user)]
        parts = [value for name, value in form if name == "kn_batch"]
        if len(parts) > BATCH_MAX:
            return [Answer("400 Bad Request", f"a batch has at most {BATCH_MAX} requests")]
        jobs = []
        for part in parts:
            inner = parse_form(part)
            jobs.append(
                self._one(
                    request, inner, first(inner, "do_method", "notify"), user, first(inner, "kn_status_from")
                )
            )
        done = await asyncio.gather(*jobs)
        return [Answer("200 Processing batch", "", {LOCATION: first(form, "kn_status_from")}), *done]

    async def _one(
        self, request: Request, form: Form, method: str, user: str, location: str | None = None
    ) -> Answer:
        try:
            answer = await self._do(request, form, method, user)
        except InvalidTopic as error:
            answer = Answer("400 Bad Request", str(error))
        except TimeoutError:
            answer = Answer(
                "503 Service Unavailable", f"not kept in time; {self._server.inlet.held}".rstrip("; ")
            )
        except ReknitError as error:
            answer = Answer("500 Internal Server Error", str(error))
        if location is None:
            location = first(form, "kn_status_from")
        return Answer(answer.status, answer.text, {LOCATION: location, **answer.elements})

    async def _do(self, request: Request, form: Form, method: str, user: str) -> Answer:
        match method:
            case "notify":
                return await self._notify(request, form, user)
            case "route" if not self._is_tunnel(form):
                return await self._route(request, form, user)
            case "noop":
                return Answer("200 OK")
            case _:
                return Answer(
                    "400 Bad Request", f"do_method={method} can't be used here; do_method=help tells more"
                )

    async def _send(
        self, connection: HttpConnection, request: Request, format: Format, form: Form, answers: list[Answer]
    ) -> None:
        """In the answer, or to the topic in `kn_status_to`."""
        to = first(form, "kn_status_to")
        if not to:
            self._reply(connection, request, format, form, answers)
            return
        for answer in answers:
            headers = {**answer.elements, STATUS: answer.status, ID: _new_id()}
            kept = {name: value for name, value in headers.items() if not is_hop_by_hop(name)}
            kept["status_from"] = answer.elements.get(LOCATION, "")
            self._server.inlet.publish(to_topic(to, self._base(request)), answer.text.encode(), kept)
        connection.answer(204, self._server.cors(request), b"", request.keep_alive)

    def _reply(
        self, connection: HttpConnection, request: Request, format: Format, form: Form, answers: list[Answer]
    ) -> None:
        body = b"".join(
            format.status({LOCATION: "", ID: _new_id(), **one.elements, STATUS: one.status}, one.text)
            for one in answers
        )
        headers = [("Content-Type", format.content_type), ("Cache-Control", "no-store")]
        head = answers[0]
        connection.answer(
            head.code, [*headers, *self._server.cors(request)], body, request.keep_alive, head.reason
        )

    # -- notify

    async def _notify(self, request: Request, form: Form, user: str) -> Answer:
        topic = to_topic(first(form, "kn_to") or request.path.removeprefix("/kn"), self._base(request))
        if topic.rpartition("/")[2] in (SUBTOPICS, ROUTES_TOPIC):
            return Answer("403 Forbidden", f"/{topic} can't be posted to")
        if not self._server.access.may_write(user, topic):
            return Answer("403 Forbidden", f"{user} may not post to /{topic}")
        await asyncio.wait_for(
            asyncio.shield(self._publish(topic, form)), self._server.settings.request_timeout_s
        )
        return Answer("200 Notified")

    def _publish(self, topic: str, form: Form) -> Kept:
        elements = {
            name: value
            for name, value in form
            if name not in CONTROL and name not in ROUTE and not is_hop_by_hop(name) and name != "token"
        }
        payload = elements.pop(PAYLOAD, "").encode("utf-8", "surrogateescape")
        ttl_ms = _expire(elements, time.time())
        is_named = bool(elements.get(ID)) and not is_journal(topic)
        elements[ID] = elements.get(ID) or _new_id()
        hashed = {name: value.encode("utf-8", "surrogateescape") for name, value in elements.items()}
        event_hash = fingerprint({**hashed, PAYLOAD: payload})
        # assigned before the event is hashed for tunnels, so that two equal events on purpose stay two
        elements.setdefault(TIME, str(int(time.time())))
        known = self._squashed.get((topic, elements[ID])) if is_named else None
        if known is not None and known[0] == event_hash and not _failed(known[1]):
            return known[1]
        clean = {name: value.encode("utf-8", "replace").decode() for name, value in elements.items()}
        kept = self._server.inlet.publish(topic, payload, clean, ttl_ms)
        if is_named:
            self._squashed[topic, elements[ID]] = (event_hash, kept)
            if len(self._squashed) > SQUASHED_MAX:
                self._squashed.popitem(last=False)
        return kept

    # -- route

    async def _route(self, request: Request, form: Form, user: str) -> Answer:
        base, router = self._base(request), self._server.router
        from_topic = to_topic(self._from(request, form), base)
        id = first(form, ID) or _new_id()
        old = router.routes.get(from_topic, id)
        to = first(form, "kn_to")
        elements = {ID: id}
        if not to:
            if old is not None:
                await router.remove(old)
            return Answer("200 Routed", "the route is deleted", elements)
        to_topic_ = to_topic(to, base)
        if denied := self._denied_route(form, from_topic, to_topic_, user):
            return denied
        if old is not None and old.to_topic == to_topic_:
            return Answer("200 Ignored route", "", elements)
        if router.is_full:
            return Answer("500 Internal Server Error", "there are too many routes")
        since = self._since(form, from_topic)
        if isinstance(since, ReconnectDenied):
            return Answer(since.status, since.why)
        count = _count(first(form, "do_max_n"))
        route = TopicRoute(id, from_topic, to_topic_, -1, since, count, first(form, "kn_uri"))
        await asyncio.wait_for(router.put(route), self._server.settings.request_timeout_s)
        return Answer("200 Routed", "", elements)

    def _denied_route(self, form: Form, from_topic: str, to: str, user: str) -> Answer | None:
        access = self._server.access
        readable = access.readable(user)
        if why := refusal(name for name, value in form if value):
            return Answer("400 Bad Request", why)
        if readable is not None and not any(one.matches(from_topic) for one in readable):
            return Answer("403 Forbidden", f"{user} may not read /{from_topic}")
        if not access.may_write(user, to):
            return Answer("403 Forbidden", f"{user} may not post to /{to}")
        return None

    def _since(self, form: Form, from_topic: str) -> int | ReconnectDenied:
        """Where a new route's population begins; -1: there is none."""
        held = self._server.held(self._tunnel.plain_scope(Pattern(from_topic)))
        if checkpoint := first(form, "do_since_checkpoint"):
            granted = since_checkpoint(checkpoint, held)
        elif (age_s := _age(first(form, "do_max_age"))) is not None:
            granted = since_age(age_s, self._server.settings.grace_s, held)
        else:
            return held.start if _count(first(form, "do_max_n")) else -1
        return granted if isinstance(granted, ReconnectDenied) else granted.place.position


def _failed(kept: Kept) -> bool:
    return kept.cancelled() or (kept.done() and kept.exception() is not None)


def _new_id() -> str:
    """A pseudorandom event id."""
    return f"{int(time.time())}_{secrets.token_hex(8)}"


def _expire(elements: dict[str, str], now: float) -> int:
    """Make `kn_expires` (absolute, `+secs`, `infinity`) absolute; gives the time to live in ms, 0 for ever."""
    text = elements.get(EXPIRES, "").strip()
    if not text or text == "infinity":
        return 0
    try:
        at = now + float(text) if text.startswith("+") else float(text)
    except ValueError:
        del elements[EXPIRES]
        return 0
    if not math.isfinite(at):
        return 0
    elements[EXPIRES] = f"{at:.0f}"
    return max(1, min(int((at - now) * 1000), (1 << 32) - 1))


def _age(text: str) -> float | None:
    """`do_max_age=<s>|infinity`."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0

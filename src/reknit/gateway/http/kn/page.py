"""mod_pubsub at `/kn`: notify, route, tunnel, batch, whoami, noop, help.

A request is answered with a status event. A route without a destination is a tunnel: the answer stays open, and brings
the status first, then what the client missed, then new events.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from reknit.errors import InvalidTopic, ReknitError
from reknit.gateway.access import Access
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.formats import FORMATS, TunnelFormat
from reknit.gateway.http.kn.notify import Notifications
from reknit.gateway.http.kn.route_requests import RouteRequests
from reknit.gateway.http.kn.status import BAD_REQUEST, FORBIDDEN, StatusEvent, new_id
from reknit.gateway.http.kn.topics import to_topic
from reknit.gateway.http.kn.tunnel import KnTunnels
from reknit.gateway.http.origins import FORBIDDEN as FORBIDDEN_ORIGIN
from reknit.gateway.http.origins import OriginPolicy
from reknit.gateway.http.publishers import HttpPublishers
from reknit.gateway.http.requests import Form, HttpRequest, first, parse_form
from reknit.protocol.tunnel.elements import ID, LOCATION, STATUS, is_hop_by_hop

BATCH_MAX: Final = 1_000
NO_PARAMETERS: Final = (
    "the request has no parameters; write them in its body, as kn_to=/what/chat&kn_payload=hi"
)
HELP: Final = """<!DOCTYPE html>
<title>/kn</title>
<p>Parameters are in the query or in a form, separated by <code>;</code> or <code>&amp;</code>.
<dl>
<dt>do_method=notify<dd>post an event to kn_to
<dt>do_method=route<dd>route kn_from to kn_to; without kn_to the answer is a tunnel, an empty kn_to deletes the route
<dt>do_method=batch<dd>several requests, each in a kn_batch
<dt>do_method=whoami<dd>your user name on this server
<dt>do_method=noop<dd>do nothing
<dt>do_method=help<dd>show this page
</dl>
<p>do_max_age, do_max_n and do_since_checkpoint set where a route begins. kn_response_format=simple or js sets the
format of events.
"""


class KnPage:
    """Answers requests to `/kn`."""

    def __init__(
        self,
        *,
        access: Access,
        origins: OriginPolicy,
        publishers: HttpPublishers,
        notifications: Notifications,
        routes: RouteRequests,
        tunnels: KnTunnels,
    ) -> None:
        self._access = access
        self._origins = origins
        self._publishers = publishers
        self._notifications = notifications
        self._routes = routes
        self._tunnels = tunnels

    async def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Answer a request; one that opens a tunnel is answered for as long as the tunnel lives."""
        if request.method not in ("GET", "POST"):
            connection.answer_text(request, 501, "use GET or POST")
            return
        form = parse_form(request.query) if request.method == "GET" else parse_form(request.body)
        if request.method == "POST" and not form:
            connection.answer_text(request, 400, NO_PARAMETERS)
            return
        method = first(form, "do_method") or _default_method(request, form)
        format = FORMATS.get(first(form, "kn_response_format", "js"))
        if format is None or format.name not in ("simple", "js"):
            answer = StatusEvent(BAD_REQUEST, "kn_response_format must be simple or js")
            self._reply(connection, request, FORMATS["simple"], [answer])
        elif method == "help":
            headers = [("Content-Type", "text/html; charset=utf-8"), *self._origins.cors(request)]
            connection.answer(200, headers, HELP.encode(), request.keep_alive)
        elif method == "whoami":
            self._whoami(connection, request)
        elif method == "route" and _is_tunnel(form):
            self._tunnels.open(connection, request, form, format, _from(request, form))
        elif why := _status_topic_fault(request, form):
            self._reply(connection, request, format, [StatusEvent(BAD_REQUEST, why)])
        else:
            answers = await self._answers(request, form, method)
            await self._send(connection, request, format, form, answers)

    def _whoami(self, connection: HttpConnection, request: HttpRequest) -> None:
        user = request.identity.name
        shown = "Anonymous User" if user == "anonymous" else user
        pairs = {"kn_userid": user, "kn_displayname": shown, "kn_server": "/kn"}
        body = "".join(f"window.{name} = {json.dumps(value)};\n" for name, value in pairs.items())
        headers = [("Content-Type", "text/javascript; charset=utf-8"), *self._origins.cors(request)]
        connection.answer(200, headers, body.encode(), request.keep_alive)

    # -- answers

    async def _answers(self, request: HttpRequest, form: Form, method: str) -> list[StatusEvent]:
        if not self._origins.is_allowed(request):
            return [StatusEvent(FORBIDDEN, FORBIDDEN_ORIGIN)]
        if request.refusal:
            return [StatusEvent(FORBIDDEN, request.refusal)]
        user = request.identity.name
        if method != "batch":
            return [await self._one(request, form, method, user)]
        values = [value for name, value in form if name == "kn_batch"]
        if len(values) > BATCH_MAX:
            return [StatusEvent(BAD_REQUEST, f"a batch may have at most {BATCH_MAX} requests")]
        parts = [parse_form(value) for value in values]
        jobs = [self._one(request, part, first(part, "do_method", "notify"), user) for part in parts]
        done = await asyncio.gather(*jobs)
        return [StatusEvent("200 Processing batch", "", {LOCATION: first(form, "kn_status_from")}), *done]

    async def _one(self, request: HttpRequest, form: Form, method: str, user: str) -> StatusEvent:
        try:
            answer = await self._do(request, form, method, user)
        except InvalidTopic as error:
            answer = StatusEvent(BAD_REQUEST, str(error))
        except TimeoutError:
            why = f"the event was not stored in time; {self._publishers.held}".rstrip("; ")
            answer = StatusEvent("503 Service Unavailable", why)
        except ReknitError as error:
            answer = StatusEvent("500 Internal Server Error", str(error))
        elements = {LOCATION: first(form, "kn_status_from"), **answer.elements}
        return StatusEvent(answer.status, answer.text, elements, answer.retry_after_s)

    async def _do(self, request: HttpRequest, form: Form, method: str, user: str) -> StatusEvent:
        base = _base(request)
        match method:
            case "notify":
                topic = to_topic(first(form, "kn_to") or request.path.removeprefix("/kn"), base)
                return await self._notifications.notify(form, topic, user)
            case "route" if not _is_tunnel(form):
                return await self._routes.route(form, to_topic(_from(request, form), base), base, user)
            case "noop":
                return StatusEvent("200 OK")
            case _:
                return StatusEvent(BAD_REQUEST, f"do_method={method} can't be used here; see do_method=help")

    async def _send(
        self,
        connection: HttpConnection,
        request: HttpRequest,
        format: TunnelFormat,
        form: Form,
        answers: list[StatusEvent],
    ) -> None:
        """Send status events in the answer, or publish them on the topic in `kn_status_to`."""
        to = first(form, "kn_status_to")
        if not to:
            self._reply(connection, request, format, answers)
            return
        if refused := self._status_refusal(request, to_topic(to, _base(request))):
            self._reply(connection, request, format, [refused, *answers])
            return
        size = sum(len(answer.text) for answer in answers)
        topic = to_topic(to, _base(request))
        if refused := await self._notifications.admit(request.identity.name, topic, len(answers), size):
            self._reply(connection, request, format, [refused, *answers])
            return
        for answer in answers:
            elements = {**answer.elements, STATUS: answer.status, ID: new_id()}
            headers = {name: value for name, value in elements.items() if not is_hop_by_hop(name)}
            headers["status_from"] = answer.elements.get(LOCATION, "")
            self._publishers.publish(topic, answer.text.encode(), headers)
        connection.answer(204, self._origins.cors(request), b"", request.keep_alive)

    def _status_refusal(self, request: HttpRequest, topic: str) -> StatusEvent | None:
        """Why status events may not be published on a topic for this client. They are answers, but also events."""
        user = request.identity.name
        if not self._origins.is_allowed(request):
            return StatusEvent(FORBIDDEN, FORBIDDEN_ORIGIN)
        if request.refusal:
            return StatusEvent(FORBIDDEN, request.refusal)
        if not self._access.may_publish(user, topic):
            return StatusEvent(FORBIDDEN, f"{user} may not post to /{topic}")
        return None

    def _reply(
        self,
        connection: HttpConnection,
        request: HttpRequest,
        format: TunnelFormat,
        answers: list[StatusEvent],
    ) -> None:
        body = b"".join(
            format.status({LOCATION: "", ID: new_id(), **one.elements, STATUS: one.status}, one.text)
            for one in answers
        )
        headers = [("Content-Type", format.content_type), ("Cache-Control", "no-store")]
        headers += self._origins.cors(request)
        if answers[0].retry_after_s:
            headers.append(("Retry-After", str(answers[0].retry_after_s)))
        connection.answer(answers[0].code, headers, body, request.keep_alive, answers[0].reason)


def _default_method(request: HttpRequest, form: Form) -> str:
    """ "GET with parameters route, POST notify, none help." """
    if request.method == "POST":
        return "notify"
    return "route" if [name for name, _ in form if name != "token"] else "help"


def _status_topic_fault(request: HttpRequest, form: Form) -> str:
    """Why no status can be published in `kn_status_to`: found before anything is done. Empty if it can."""
    try:
        if to := first(form, "kn_status_to"):
            to_topic(to, _base(request))
    except InvalidTopic as error:
        return f"kn_status_to: {error}"
    return ""


def _is_tunnel(form: Form) -> bool:
    """A route without `kn_to` is a tunnel."""
    to = next((value for name, value in form if name == "kn_to"), None)
    return to is None or to.startswith("javascript:")


def _base(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.headers.get('host', '')}/kn"


def _from(request: HttpRequest, form: Form) -> str:
    """Path info is the default `kn_from`."""
    return first(form, "kn_from") or request.path.removeprefix("/kn")

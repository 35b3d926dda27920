"""The doors of a node, and what can be tried at each.

Every action says whether it happened: an event is in the journal, a secret came out, an order was carried out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlencode

from reknit.testing.attack.actions import Action, Try
from reknit.testing.attack.credentials import ANN, ROOT, Credential, Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.http_client import HttpAnswer, request
from reknit.testing.attack.native_doors import TCP, TCP_JWT, TLS, UNIX
from reknit.testing.attack.node_doors import NODES
from reknit.testing.attack.target import SECRET, SECRET_TOPIC, Target, has
from reknit.trust.rules import ANONYMOUS

# -- http


def _judged(answer: HttpAnswer, visitor: Visitor, secret: bytes = SECRET) -> str:
    """A page of another site has read a secret only if its browser was told that it may."""
    is_shown = visitor.credential is not Credential.FOREIGN or "access-control-allow" in answer.head.lower()
    if secret in answer.body and is_shown:
        raise Happened
    return answer.words


def reads(path: str, **headers: str) -> Try:
    """A stream: whether a secret that is published while it is open comes out of it."""

    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        opening = request(target.ports["http"], "GET", path, {**headers, **visitor.headers})
        stream = asyncio.create_task(opening)
        await asyncio.sleep(0.25)
        await target.say_secret()
        return _judged(await stream, visitor)

    return attempt


def posts(path: str, form: dict[str, str]) -> Try:
    """A form; `{}` in its values is the number."""

    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        body = urlencode({name: value.format(number) for name, value in form.items()}).encode()
        return (await request(target.ports["http"], "POST", path, visitor.headers, body)).words

    return attempt


async def http_route(target: Target, visitor: Visitor, number: int) -> str:
    """Route ann's topic to another: whoever reads that one, and may read hers, gets her events there."""
    form = {"do_method": "route", "kn_from": "/plant/secret", "kn_to": f"/other/{number}"}
    answer = await request(target.ports["http"], "POST", "/kn", visitor.headers, urlencode(form).encode())
    if "200 Routed" in answer.head:
        raise Happened
    return answer.words


async def http_cloudevent(target: Target, visitor: Visitor, number: int) -> str:
    event = {
        "specversion": "1.0",
        "id": "00000000-0001-7000-8010-101010101a1a",
        "source": f"up://plant/10/1/{0x8000 + number:X}",
        "type": "up-pub.v1",
        "data": "x",
    }
    headers = {"Content-Type": "application/cloudevents+json", **visitor.headers}
    return (
        await request(target.ports["http"], "POST", "/cloudevents", headers, json.dumps(event).encode())
    ).words


async def metrics(target: Target, visitor: Visitor, number: int) -> str:
    answer = await request(target.ports["metrics"], "GET", "/metrics", visitor.headers)
    return _judged(answer, visitor, SECRET_TOPIC.encode())


async def console_figures(target: Target, visitor: Visitor, number: int) -> str:
    answer = await request(target.ports["http"], "GET", "/api/v1/topics", visitor.headers)
    return _judged(answer, visitor, SECRET_TOPIC.encode())


async def console_order(target: Target, visitor: Visitor, number: int) -> str:
    headers = {"Content-Type": "application/json", **visitor.headers}
    answer = await request(
        target.ports["http"], "POST", "/api/v1/dead-letters/drop", headers, b'{"limit": 0}'
    )
    if " 200 " in answer.head.partition("\r\n")[0]:
        raise Happened
    return answer.words


WS: Final = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
PAGE: Final = tuple(Credential)


HTTP: Final = (
    Action("HTTP /kn", "publish", ANN, posts("/kn", {"kn_to": "/plant/attack/{}", "kn_payload": "x"}),
           "plant/attack/{}", PAGE),
    Action("HTTP /kn", "publish a status", ANN,
           posts("/kn", {"do_method": "noop", "kn_status_to": "/plant/attack/{}"}), "plant/attack/{}", PAGE),
    Action("HTTP /kn", "subscribe", ANN, reads("/kn?kn_from=/plant/secret"), "", PAGE),
    Action("HTTP /kn", "route", ROOT, http_route, "", PAGE),
    Action("HTTP /sse", "subscribe", ANN, reads("/sse?topic=plant/**"), "", PAGE),
    Action("HTTP /ws", "subscribe", ANN, reads("/ws?topic=plant/**", **WS), "", PAGE),
    Action("HTTP /cloudevents", "publish", ANN, http_cloudevent, "up/plant/10/0/1/{}", PAGE),
    Action("HTTP /api", "see the topics", ROOT, console_figures, "", PAGE),
    Action("HTTP /api", "drop dead letters", ROOT, console_order, "", PAGE),
)  # fmt: skip


def as_jwt(actions: Iterable[Action], door: str) -> tuple[Action, ...]:
    """The same with JSON Web Tokens."""
    return tuple(action._replace(door=door, is_jwt=True) for action in actions)


def _amqp() -> tuple[Action, ...]:
    """The actions of the AMQP door."""
    from reknit.testing.attack import amqp_door

    return (
        Action("AMQP", "publish", ANN, amqp_door.publish, "plant/attack/{}"),
        Action("AMQP", "subscribe", ANN, amqp_door.subscribe),
    )


def _zenoh() -> tuple[Action, ...]:
    """The actions of the Zenoh door, which can't tell who is there: whoever comes is `anonymous`."""
    from reknit.testing.attack import zenoh_door

    nobody, right = (Credential.NONE,), (Credential.RIGHT,)
    where = "where anonymous may"
    return (
        Action("Zenoh", "publish", ANN, zenoh_door.publish, "plant/attack/{}", nobody),
        Action("Zenoh", f"publish {where}", ANONYMOUS, zenoh_door.publish_openly, "lobby/{}", right),
        Action("Zenoh", "subscribe", ANN, zenoh_door.subscribe, "", nobody),
        Action("Zenoh", f"subscribe {where}", ANONYMOUS, zenoh_door.subscribe_openly, "", right),
        Action("Zenoh", "read the past", ANN, zenoh_door.query, "", nobody),
    )


NEEDS: Final = {
    "tls": ("cryptography",),
    "tcp, JWT": ("joserfc",),
    "HTTP /kn, JWT": ("joserfc",),
    "HTTP /sse, JWT": ("joserfc",),
    "AMQP": ("proton",),
    "AMQP, JWT": ("proton", "joserfc"),
    "Zenoh": ("zenoh",),
    "group": ("cryptography",),
}
"""The packages that are needed to try a door."""


def _actions() -> Iterator[Action]:
    """Everything that can be tried with the packages that are installed."""
    yield from TCP
    if has("cryptography"):
        yield from TLS
    yield from UNIX
    if has("joserfc"):
        yield from TCP_JWT
    yield from HTTP
    if has("joserfc"):
        yield from as_jwt(HTTP[:1], "HTTP /kn, JWT")
        yield from as_jwt(HTTP[4:5], "HTTP /sse, JWT")
    if has("proton"):
        yield from _amqp()
    if has("proton") and has("joserfc"):
        yield from as_jwt(_amqp(), "AMQP, JWT")
    if has("zenoh"):
        yield from _zenoh()
    yield from NODES
    if has("cryptography"):
        from reknit.testing.attack.group_door import GROUP

        yield from GROUP
    yield Action("metrics", "see the metrics", ROOT, metrics, "", PAGE)


ACTIONS: Final = tuple(_actions())

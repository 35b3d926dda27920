"""The doors of a node, and what can be tried at each.

Every action says whether it happened: an event is in the journal, a secret came out, an order was carried out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import reknit
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.errors import ReknitError
from reknit.testing.attack.credentials import ANN, ROOT, Credential, Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.http_client import HttpAnswer, request
from reknit.testing.attack.target import SECRET, SECRET_TOPIC, Target
from reknit.testing.fabric.programs.amqp.client import is_available

PATIENCE_S: Final = 5.0

Try = Callable[[Target, Visitor, int], Awaitable[str]]
"""Try something, under a number that nothing else has. Returns the words of the answer, or raises `Happened`."""


class Action(NamedTuple):
    """Something that can be tried at a door."""

    door: str
    name: str
    identity: str
    """Whose credential is the right one."""
    attempt: Try
    topic: str = ""
    """Where its event would be stored, with the number in place of {}; empty if it publishes nothing."""
    credentials: tuple[Credential, ...] = (
        Credential.NONE, Credential.WRONG, Credential.EXPIRED, Credential.OTHER, Credential.RIGHT,
    )  # fmt: skip


# -- tcp


async def _connected(target: Target, visitor: Visitor, act: Callable[[Session], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S), reknit.connect(target.url, token=visitor.token) as session:
            await act(session)
    except TimeoutError:
        return "no answer"
    except (ReknitError, ExceptionGroup) as error:
        return str(error)
    return "done"


async def _take_secret(events: Subscription) -> None:
    async for event in events:
        if bytes(event.payload) == SECRET:
            raise Happened


async def tcp_publish(target: Target, visitor: Visitor, number: int) -> str:
    async def act(session: Session) -> None:
        await session.publish(f"plant/attack/{number}", b"x")

    return await _connected(target, visitor, act)


async def tcp_subscribe(target: Target, visitor: Visitor, number: int) -> str:
    async def act(session: Session) -> None:
        async with session.subscribe("plant/**") as events:
            await target.say_secret()
            await _take_secret(events)

    return await _connected(target, visitor, act)


async def tcp_history(target: Target, visitor: Visitor, number: int) -> str:
    async def act(session: Session) -> None:
        async with session.subscribe("plant/**", history=True) as events:
            await _take_secret(events)

    return await _connected(target, visitor, act)


def asks(what: str, **args: Any) -> Try:
    """Something that is asked for, or ordered."""

    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        async def act(session: Session) -> None:
            await session.ask(what, **args)
            raise Happened

        return await _connected(target, visitor, act)

    return attempt


async def tcp_pause(target: Target, visitor: Visitor, number: int) -> str:
    async def act(session: Session) -> None:
        await session.pause(f"nothing/{number}")
        raise Happened

    return await _connected(target, visitor, act)


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


WS: Final = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
PAGE: Final = tuple(Credential)


def _amqp() -> tuple[Action, ...]:
    """The actions of the AMQP door, where Proton is installed."""
    if not is_available():
        return ()
    from reknit.testing.attack import amqp_door

    return (
        Action("AMQP", "publish", ANN, amqp_door.publish, "plant/attack/{}"),
        Action("AMQP", "subscribe", ANN, amqp_door.subscribe),
    )


ACTIONS: Final = (
    Action("tcp", "publish", ANN, tcp_publish, "plant/attack/{}"),
    Action("tcp", "subscribe", ANN, tcp_subscribe),
    Action("tcp", "read the past", ANN, tcp_history),
    Action("tcp", "see the status", ROOT, asks("status")),
    Action("tcp", "read the journal", ROOT, asks("read", position=0)),
    Action("tcp", "pause a topic", ROOT, tcp_pause),
    Action("tcp", "see dead letters", ROOT, asks("dead_letters")),
    Action("tcp", "see owners", ROOT, asks("owners")),
    Action("tcp", "add a link", ROOT, asks("link_add", to="tcp://127.0.0.1:9")),
    Action("HTTP /kn", "publish", ANN, posts("/kn", {"kn_to": "/plant/attack/{}", "kn_payload": "x"}),
           "plant/attack/{}", PAGE),
    Action("HTTP /kn", "publish a status", ANN,
           posts("/kn", {"do_method": "noop", "kn_status_to": "/plant/attack/{}"}), "plant/attack/{}", PAGE),
    Action("HTTP /kn", "subscribe", ANN, reads("/kn?kn_from=/plant/secret"), "", PAGE),
    Action("HTTP /kn", "route", ROOT, http_route, "", PAGE),
    Action("HTTP /sse", "subscribe", ANN, reads("/sse?topic=plant/**"), "", PAGE),
    Action("HTTP /ws", "subscribe", ANN, reads("/ws?topic=plant/**", **WS), "", PAGE),
    Action("HTTP /cloudevents", "publish", ANN, http_cloudevent, "up/plant/10/0/1/{}", PAGE),
    *_amqp(),
    Action("metrics", "see the metrics", ROOT, metrics, "", PAGE),
)  # fmt: skip

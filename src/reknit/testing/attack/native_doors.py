"""The doors of our own clients: TCP, TLS with certificates, Unix sockets, and JSON Web Tokens instead of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import reknit
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.errors import ReknitError
from reknit.testing.attack.actions import PATIENCE_S, Action, Try
from reknit.testing.attack.credentials import ANN, LOCAL, ROOT, Credential, Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.target import SECRET, Target

Reach = Callable[[Target, Visitor], Session]
"""A session at a door, with what a visitor shows there."""


def over_tcp(target: Target, visitor: Visitor) -> Session:
    return reknit.connect(target.url, token=visitor.token)


def over_tls(target: Target, visitor: Visitor) -> Session:
    """Certificates instead of tokens. A node that refuses one closes the connection, and the client tries again."""
    context = target.certificates.context(visitor.shown)
    return reknit.connect(target.urls["tls"], tls=context, wait_s=1.0)


def over_unix(target: Target, visitor: Visitor) -> Session:
    return reknit.connect(target.urls["unix"], token=visitor.token)


async def _connected(session: Session, act: Callable[[Session], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S), session:
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


def publishes(reach: Reach, place: str = "plant/attack/{}") -> Try:
    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        async def act(session: Session) -> None:
            await session.publish(place.format(number), b"x")

        return await _connected(reach(target, visitor), act)

    return attempt


def subscribes(reach: Reach, history: bool = False) -> Try:
    """A secret that is published after that, or one of the past."""

    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        async def act(session: Session) -> None:
            async with session.subscribe("plant/**", history=history) as events:
                if not history:
                    await target.say_secret()
                await _take_secret(events)

        return await _connected(reach(target, visitor), act)

    return attempt


def asks(reach: Reach, what: str, **args: Any) -> Try:
    """Something that is asked for, or ordered."""

    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        async def act(session: Session) -> None:
            await session.ask(what, **args)
            raise Happened

        return await _connected(reach(target, visitor), act)

    return attempt


def adds_link(reach: Reach) -> Try:
    """Let the node link another, which nobody else has tried."""

    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        there = f"tcp://127.0.{1 + number // 250}.{1 + number % 250}:9"
        return await asks(reach, "link_add", to=there)(target, visitor, number)

    return attempt


def pauses(reach: Reach) -> Try:
    async def attempt(target: Target, visitor: Visitor, number: int) -> str:
        async def act(session: Session) -> None:
            await session.pause(f"nothing/{number}")
            raise Happened

        return await _connected(reach(target, visitor), act)

    return attempt


def _everything(door: str, reach: Reach, is_jwt: bool = False) -> tuple[Action, ...]:
    """All that a client of our own can do."""
    places = (("publish", publishes(reach), "plant/attack/{}"), ("subscribe", subscribes(reach), ""))
    own = (*places, ("read the past", subscribes(reach, history=True), ""))
    orders = (
        ("see the status", asks(reach, "status")),
        ("read the journal", asks(reach, "read", position=0)),
        ("pause a topic", pauses(reach)),
        ("see dead letters", asks(reach, "dead_letters")),
        ("see owners", asks(reach, "owners")),
        ("add a link", adds_link(reach)),
    )
    return (
        *(Action(door, name, ANN, attempt, topic, is_jwt=is_jwt) for name, attempt, topic in own),
        *(Action(door, name, ROOT, attempt, is_jwt=is_jwt) for name, attempt in orders),
    )


SHOWN: Final = (Credential.WRONG, Credential.EXPIRED, Credential.OTHER, Credential.RIGHT)
"""A Unix socket always says who is there. A token that is shown counts instead."""

TCP: Final = _everything("tcp", over_tcp)
TCP_JWT: Final = _everything("tcp, JWT", over_tcp, is_jwt=True)
TLS: Final = _everything("tls", over_tls)
UNIX: Final = (
    *_everything("unix", over_unix),
    Action("unix", "publish as a Unix user", LOCAL, publishes(over_unix, "local/{}"), "local/{}", SHOWN),
)

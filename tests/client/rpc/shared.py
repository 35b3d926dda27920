"""Short words for tests of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import reknit
from reknit.address import Address
from reknit.client.rpc.attribute_publisher import AttributePublisher
from reknit.client.rpc.service import Request
from reknit.dead_letter import DeadLetterContent, read_letter
from reknit.errors import RequestFailed
from reknit.outcome import Code

DOORS = Address.parse("//vcu/10/1/7")


def run(program: Coroutine[Any, Any, None], patience_s: float = 30.0) -> None:
    async def limited() -> None:
        async with asyncio.timeout(patience_s):
            await program

    asyncio.run(limited())


async def echo(request: Request) -> bytes:
    return b"echo " + request.payload


async def never(request: Request) -> bytes:
    await asyncio.Event().wait()
    return b""


async def failure(session: reknit.Session, ttl_ms: int = 200, **more: Any) -> RequestFailed:
    """Why a request to the doors fails."""
    with pytest.raises(RequestFailed) as caught:
        await session.request(DOORS, b"open", ttl_ms=ttl_ms, **more)
    return caught.value


async def letters(session: reknit.Session, count: int) -> list[DeadLetterContent]:
    """The first dead letters that there are, or will be."""
    async with session.subscribe("reknit/dead-letters", history=True) as events:
        return [read_letter((await anext(events)).payload) for _ in range(count)]


def is_code(error: RequestFailed, code: Code) -> bool:
    return error.code == code and error.address == str(DOORS)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the others run until something is so."""
    while not is_so():  # noqa: ASYNC110 (what is waited for has no event of its own)
        await asyncio.sleep(0.01)


def all_kept(session: reknit.Session) -> bool:
    """Whether everything with attributes that a session sent is kept, and it sent something."""
    made = [one for one in session.router.publishers.values() if isinstance(one, AttributePublisher)]
    return bool(made) and all(publisher.is_idle for publisher in made)

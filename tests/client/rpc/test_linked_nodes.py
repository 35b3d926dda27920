"""Requests between linked nodes: asked on one, served on another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import reknit
from reknit.config import Config, JournalSettings, LinkSettings, NodeSettings
from reknit.outcome import Code
from tests.client.node_thread import serving
from tests.client.rpc.shared import DOORS, echo, failure, is_code, never, run

pytestmark = pytest.mark.real


@contextmanager
def linked() -> Iterator[tuple[str, str]]:
    """Two nodes, the second linked to the first."""
    memory = JournalSettings(kind="memory")

    def node(name: str, *to: str) -> Config:
        listen = NodeSettings(name=name, listen=("tcp://127.0.0.1:0",))
        return Config(node=listen, journal=memory, links=LinkSettings(to=to))

    with serving(node("here")) as here, serving(node("there", here.urls[0])) as there:
        yield here.urls[0], there.urls[0]


async def carries(one: reknit.Session, other: reknit.Session) -> None:
    """Return when events go over the link: a new link carries those from the moment on when it is asked for them."""
    async with other.subscribe("probe") as events:
        arrived = asyncio.ensure_future(anext(events))
        while not arrived.done():
            await one.publish("probe", b"x")
            await asyncio.wait([arrived], timeout=0.05)


async def knows(session: reknit.Session, name: str) -> None:
    """Return when a node has heard what another one subscribes to."""
    while True:
        rows = await session.ask("links")
        if any(row["node"] == name and row["subscriptions"] for row in rows):
            return
        await asyncio.sleep(0.02)


def test_a_request_is_served_on_another_node() -> None:
    async def program(here: str, there: str) -> None:
        async with (
            reknit.connect(here) as client,
            reknit.connect(there) as server,
            server.serve(DOORS, echo),
        ):
            await carries(client, server)
            await carries(server, client)
            await knows(client, "there")
            assert (await client.request(DOORS, b"open", ttl_ms=20_000)).payload == b"echo open"

    with linked() as urls:
        run(program(*urls))


def test_a_request_that_is_not_answered_on_another_node_is_deadline_exceeded() -> None:
    async def program(here: str, there: str) -> None:
        async with (
            reknit.connect(here) as client,
            reknit.connect(there) as server,
            server.serve(DOORS, never),
        ):
            await carries(client, server)
            await carries(server, client)
            await knows(client, "there")
            assert is_code(await failure(client, 500), Code.DEADLINE_EXCEEDED)

    with linked() as urls:
        run(program(*urls))

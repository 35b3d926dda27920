"""A node that goes away and comes back: publishers resend, nothing comes twice, durable subscribers go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, TransportSettings
from reknit.processes.process import NodeProcess, ending

pytestmark = pytest.mark.real

QUICK = Config(transport=TransportSettings(reconnect_backoff_s_min=0.02, reconnect_backoff_s_max=0.1))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node to be killed."""
    process = NodeProcess(tmp_path)
    with ending(process):
        process.start()
        yield process


def run(program: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(150):
            await program

    asyncio.run(limited())


async def restart(node: NodeProcess) -> None:
    node.kill()
    await asyncio.to_thread(node.start)


async def taken(events: Subscription, count: int) -> list[int]:
    return [int((await anext(events)).payload) for _ in range(count)]


def test_a_publisher_resends_under_the_same_seqs_and_nothing_comes_twice(node: NodeProcess) -> None:
    async def program() -> None:
        async with (
            reknit.connect(node.url, config=QUICK) as session,
            session.subscribe("a", name="audit") as events,
        ):
            publisher = session.publisher("a")
            got: list[int] = []
            for number in range(200):
                publisher.publish(b"%d" % number)
                await asyncio.sleep(0.001)
                if number in (50, 120):
                    await restart(node)
            await publisher.flush()
            got = await taken(events, 200)
            assert got == list(range(200))
        async with reknit.connect(node.url) as session:
            (row,) = await session.ledger()
            assert (row["published"], row["accepted"], row["in_flight"]) == (200, 200, 0)

    run(program())


def test_what_is_resent_and_known_is_dropped(node: NodeProcess) -> None:
    """The ack is lost on the way: the node has the events, the publisher does not know it."""

    async def program() -> None:
        async with reknit.connect(node.url, config=QUICK) as session:
            publisher = session.publisher("a")
            await publisher.publish(b"0")
            link = session.connection
            link._user, user = Deaf(), link._user
            kept = publisher.publish_many([b"1", b"2"])
            async with reknit.connect(node.url) as other:
                while (await other.status())["journal"]["events"] < 3:
                    pass
            assert not kept.done()
            link._user = user
            link.drop()
            await kept
            status = await session.status()
            assert status["intake"]["duplicates"] == 2
            assert status["journal"]["events"] == 3

    run(program())


class Deaf:
    """Hears nothing of what the node says."""

    def connected(self, welcome: object) -> None: ...
    def disconnected(self) -> None: ...
    def received(self, items: object) -> None: ...


def test_a_plain_subscriber_goes_on_after_a_restart(node: NodeProcess) -> None:
    async def program() -> None:
        async with reknit.connect(node.url, config=QUICK) as session, session.subscribe("a") as events:
            await session.publish_many("a", [b"0", b"1"])
            assert await taken(events, 2) == [0, 1]
            await restart(node)
            await session.publish_many("a", [b"2", b"3"])
            assert await taken(events, 2) == [2, 3]

    run(program())


def test_a_durable_subscriber_gets_what_came_while_it_was_away(node: NodeProcess) -> None:
    async def program() -> None:
        async with reknit.connect(node.url, config=QUICK) as session:
            async with session.subscribe("a", name="audit") as events:
                await session.publish("a", b"0")
                assert await taken(events, 1) == [0]
            await session.publish("a", b"1")
            await restart(node)
            await session.publish("a", b"2")
            async with session.subscribe("a", name="audit") as events:
                assert await taken(events, 2) == [1, 2]

    run(program())


def test_a_checkpoint_goes_on_in_another_connection(node: NodeProcess) -> None:
    async def program() -> None:
        async with reknit.connect(node.url, config=QUICK) as session:
            await session.publish_many("a", [b"%d" % number for number in range(10)])
            async with session.subscribe("a", history=True) as events:
                assert await taken(events, 5) == [0, 1, 2, 3, 4]
                here = str(events.checkpoint)
        await restart(node)
        async with reknit.connect(node.url) as session:
            start = reknit.Checkpoint.from_text(here)
            async with session.subscribe("a", start=start) as events:
                assert await taken(events, 6) == [4, 5, 6, 7, 8, 9]

    run(program())


def test_a_stopped_node_says_goodbye_and_keeps_everything(node: NodeProcess) -> None:
    async def program() -> None:
        async with reknit.connect(node.url, config=QUICK) as session:
            await session.publish_many("a", [b"x"] * 1000)
            assert await asyncio.to_thread(node.stop) == 0
            await asyncio.to_thread(node.start)
            await session.publish("a", b"y")
            assert (await session.status())["journal"]["events"] == 1001
        assert "not closed cleanly" not in node.output()

    run(program())

"""Events that everyone gets, between nodes in this process whose links break again and again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from reknit.client.session import connect
from reknit.config import Config, JournalSettings, LinkSettings, NodeSettings, TransportSettings
from reknit.node.node import Node
from reknit.server import build_node
from tests.node.node_processes import run, until

EVENTS = 200


def config(name: str, *links: str) -> Config:
    return Config(
        node=NodeSettings(name=name, listen=("tcp://127.0.0.1:0",)),
        journal=JournalSettings(kind="memory"),
        links=LinkSettings(to=links, beat_s=0.1, timeout_s=5.0),
        transport=TransportSettings(reconnect_backoff_s_min=0.01, reconnect_backoff_s_max=0.05),
    )


async def ring(stack: AsyncExitStack, names: str, chords: str = "") -> dict[str, Node]:
    """Nodes in a ring, each linked to the one before; and the first to those of `chords`."""
    nodes: dict[str, Node] = {}
    for at, name in enumerate(names):
        to = [nodes[names[at - 1]].urls[0]] if at else []
        to += [nodes[names[0]].urls[0]] if at > 1 and (at == len(names) - 1 or name in chords) else []
        nodes[name] = await stack.enter_async_context(build_node(config(name, *to)))
    await until(lambda: all(len(node.links.routes.reachable()) == len(names) - 1 for node in nodes.values()))
    return nodes


async def collect(node: Node, opened: asyncio.Event, got: dict[bytes, list[int]]) -> None:
    async with connect(node.urls[0]) as session, session.subscribe("plant/**", name="audit") as events:
        opened.set()
        async for event in events:
            got.setdefault(event.source, []).append(event.seq)


@pytest.mark.parametrize("seed", range(2))
def test_everyone_gets_everything_once_and_in_order_while_links_break(seed: int) -> None:
    rng = Random(seed)

    async def test() -> None:
        async with AsyncExitStack() as stack:
            nodes = await ring(stack, "abcde", "c")
            got: dict[str, dict[bytes, list[int]]] = {name: {} for name in nodes}
            opened = {name: asyncio.Event() for name in nodes}
            takers = [asyncio.create_task(collect(nodes[name], opened[name], got[name])) for name in nodes]
            for event in opened.values():
                await event.wait()
            await until(
                lambda: all(
                    len(node.links.routes.destinations("plant/x", "journal")) == 4 for node in nodes.values()
                )
            )

            async def publish(name: str) -> bytes:
                async with connect(nodes[name].urls[0]) as session:
                    publisher = session.publisher(f"plant/{name}")
                    for number in range(EVENTS):
                        await publisher.publish(b"%d" % number)
                        await asyncio.sleep(0.0005)
                    return publisher.source

            async def breaking() -> None:
                while True:
                    await asyncio.sleep(rng.uniform(0.02, 0.1))
                    lines = [line for node in nodes.values() for line in node.links.connections()]
                    if lines:
                        rng.choice(lines).drop()

            breaker = asyncio.create_task(breaking())
            sources = await asyncio.gather(*(publish(name) for name in "ace"))
            breaker.cancel()
            whole = {source: list(range(1, EVENTS + 1)) for source in sources}
            await until(lambda: all(sum(map(len, one.values())) >= 3 * EVENTS for one in got.values()))
            assert all(one == whole for one in got.values())
            for taker in takers:
                taker.cancel()
            await asyncio.gather(*takers, return_exceptions=True)
            for node in nodes.values():
                rows = [row for row in await node.figures.ledger() if row["subscriber"] == "audit"]
                assert all(row["balanced"] and not row["lost"] for row in rows)

    run(test)

"""Tunnels on a node that is linked: what is published on other nodes comes, or the client is told that it may not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reknit.client import tunnel
from reknit.client.session import connect
from reknit.processes.process import NodeProcess, ending, free_port
from tests.node.node_processes import until

pytestmark = pytest.mark.real

TOPIC = "what/chat"


class Linked:
    """Node a, and node b with a link to it and an HTTP gateway."""

    def __init__(self, folder: Path, *settings: str) -> None:
        port = free_port()
        options = [word for setting in ("http.retry_ms=200", *settings) for word in ("--set", setting)]
        self.a = NodeProcess(folder, name="a")
        self.b = NodeProcess(folder, "--link", self.a.url, "--http", f"127.0.0.1:{port}", *options, name="b")
        self.web = f"http://127.0.0.1:{port}"

    def start(self) -> None:
        self.a.start()
        self.b.start()

    async def knows(self, is_wanted: bool) -> None:
        """Return when a knows that somebody on b reads, or that nobody does."""

        async def look() -> bool:
            async with connect(self.a.url, wait_s=60) as session:
                rows = await session.ask("links")
            return any(row["node"] == "b" and bool(row["subscriptions"]) == is_wanted for row in rows)

        await until(look)

    async def publish(self, *texts: str) -> None:
        async with connect(self.a.url, wait_s=60) as session:
            await session.publish_many(TOPIC, [text.encode() for text in texts])


def test_a_tunnel_gets_what_is_published_on_a_linked_node_also_after_its_own_node_was_killed(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        linked.start()
        async with tunnel.open(linked.web, TOPIC) as events:
            await linked.knows(True)
            await linked.publish("one", "two")
            coming = aiter(events)
            assert [(await anext(coming)).payload for _ in range(2)] == [b"one", b"two"]
            linked.b.kill()
            await linked.publish("three")
            await asyncio.to_thread(linked.b.start)
            assert (await anext(coming)).payload == b"three"
            assert events.state is tunnel.State.RECOVERED

    linked = Linked(tmp_path, "http.scheme=kn_route_checkpoint")
    with ending(linked.a, linked.b):
        asyncio.run(asyncio.wait_for(test(), 150))


def test_a_tunnel_resumes_after_its_client_was_away(tmp_path: Path) -> None:
    async def test() -> None:
        linked.start()
        async with tunnel.open(linked.web, TOPIC) as events:
            await linked.knows(True)
            await linked.publish("one")
            assert (await anext(aiter(events))).payload == b"one"
            place = events.checkpoint
        await linked.publish("two")
        async with tunnel.open(linked.web, TOPIC, checkpoint=place) as events:
            assert (await anext(aiter(events))).payload == b"two"

    linked = Linked(tmp_path, "http.scheme=kn_route_checkpoint")
    with ending(linked.a, linked.b):
        asyncio.run(asyncio.wait_for(test(), 150))


def test_a_client_that_was_away_for_longer_than_its_topics_were_followed_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        linked.start()
        async with tunnel.open(linked.web, TOPIC) as events:
            await linked.knows(True)
            await linked.publish("one")
            assert (await anext(aiter(events))).payload == b"one"
            place = events.checkpoint
        await linked.knows(False)
        await linked.publish("two")
        with pytest.raises(tunnel.TunnelLost, match="404 Expired"):
            async with tunnel.open(linked.web, TOPIC, checkpoint=place) as events:
                await anext(aiter(events))

    linked = Linked(tmp_path, "http.scheme=kn_route_checkpoint", "http.follow_s=1")
    with ending(linked.a, linked.b):
        asyncio.run(asyncio.wait_for(test(), 150))

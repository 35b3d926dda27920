"""Whoever says that it is a node and is none does no harm."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.client.session import connect
from reknit.config import Config, JournalSettings, NodeSettings, TopicSettings
from reknit.connection.node_connection import NodeConnection
from reknit.node.node import Node
from reknit.outcome import Outcome
from reknit.server import build_node
from reknit.topic import Pattern
from reknit.wire.codec import Item, encode
from reknit.wire.links import (
    Announce,
    AskWhole,
    Beat,
    Carry,
    Forward,
    Got,
    Link,
    LinkState,
    Pull,
    Return,
    Returned,
    Skip,
    Via,
)
from reknit.wire.messages import Message, Welcome
from reknit.wire.outcomes import RangeOutcome, Want
from tests.node.node_processes import run, until

HELLO = Link("stranger", 1, 1, False, [], "epoch")
BATCH = Batch.build(b"s" * 16, "orders/x", 1, [b"x"], time_us=0)
FORWARD = Forward(BATCH.head.length, "stranger", "closest", True, 1, 0, ["stranger"])


class Stranger:
    """A connection that says what it likes."""

    def __init__(self, node: Node) -> None:
        self.link = NodeConnection(node.urls[0], "stranger", self, node.config, role="node")
        self.got: list[Item] = []
        self.is_gone = False

    def connected(self, welcome: Welcome) -> None:
        self.is_gone = False

    def disconnected(self) -> None:
        self.is_gone = True

    def received(self, items: list[Item]) -> None:
        self.got += items


LOGGED: list[tuple[str, list[Message | bytes], bool]] = [
    ("nothing before a link", [LinkState("x", 1, 1, {}), FORWARD, bytes(BATCH.data), Got(3), Pull("", -1)], False),
    ("a name that is none", [Link("", 1, 1, False, [], "")], True),
    ("our own name", [Link("here", 1, 1, False, [], "")], True),
    ("a pattern that is none", [HELLO, Announce("stranger", 1, 2, [("a//b", "any")], is_whole=True)], True),
    ("a mode that is none", [HELLO, Announce("stranger", 1, 2, [("a", "some")], is_whole=True)], True),
    ("a cost that is none", [HELLO, LinkState("stranger", 1, 2, {"here": -5})], True),
    ("a distribution that is none", [HELLO, Forward(8, "x", "odd", True, 1, 0, [])], True),
    ("outcomes of nothing", [HELLO, Returned([Return("a", b"s" * 16, RangeOutcome(1, 1 << 60, 99), ["x"])])], False),
    ("positions that are none", [HELLO, Got(-5), Got(1 << 62), Pull("other", 1 << 60), Pull("", -7)], False),
    ("unknown nodes", [HELLO, AskWhole("nobody"), Beat([("x", 1 << 62, -1, 5)]), Beat([])], False),
    ("batches without a word", [HELLO, bytes(BATCH.data)], False),
    ("a delivery that nobody wants", [HELLO, FORWARD, bytes(BATCH.data)], False),
    ("a carry", [HELLO, Carry(BATCH.head.length, 7, [(b"x", "y")]), bytes(BATCH.data), Carry(0, -3, [])], False),
    ("odd wants", [Want(b"", "a//b", True, -1, 1 << 60), Want(b"x", "orders/x", True, 9, 3)], False),
    ("odd bridges", [Via(b"", ["x"] * 100), Skip("plain/x", b"q" * 16, 5, 3, ""), Skip("a//b", b"q", 1, 2, "")], False),
]  # fmt: skip


@pytest.mark.parametrize(("what", "says", "is_dismissed"), LOGGED, ids=[row[0] for row in LOGGED])
def test_a_stranger_does_no_harm(what: str, says: list[Message | bytes], is_dismissed: bool) -> None:
    async def test() -> None:
        broken: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context))
        config = Config(
            node=NodeSettings(name="here", listen=("tcp://127.0.0.1:0",)),
            journal=JournalSettings(kind="memory"),
            topics=(TopicSettings(pattern=Pattern("orders/**"), distribution="closest"),),
        )
        async with build_node(config) as node:
            stranger = Stranger(node)
            await stranger.link.open(5.0)
            stranger.link.send_buffers([one if isinstance(one, bytes) else encode(one) for one in says])
            if is_dismissed:
                await until(lambda: stranger.is_gone)
            async with connect(node.urls[0]) as session, session.subscribe("orders/x") as events:
                sender = session.publisher("orders/x", outcome=True)
                said: asyncio.Future[Any] = asyncio.ensure_future(sender.publish(b"fine"))
                while (await anext(events)).payload != b"fine":
                    pass
                await anext_or_done(events, said)
                assert said.result() is Outcome.ACCEPTED
                await session.publish("plain/x", b"fine")
            await stranger.link.close()
        assert broken == []

    run(test)


async def anext_or_done(events: Any, said: asyncio.Future[Any]) -> None:
    """Asking for the next event accepts the last one."""
    asking = asyncio.ensure_future(anext(events))
    await said
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)

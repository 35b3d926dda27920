"""A peer that claims to be a node and sends bad input: it does no harm, and learns the reason if it is dismissed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from reknit.batch import Batch
from reknit.client.session import connect
from reknit.config import Config, JournalSettings, LinkSettings, NodeSettings, TopicSettings
from reknit.connection.node_connection import NodeConnection
from reknit.frame import KIND_MESSAGE, wrap
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
from reknit.wire.messages import Answer, Ask, Message, Welcome
from reknit.wire.outcomes import RangeOutcome, Want
from tests.node.node_processes import PATIENCE_S, run, until

HELLO = Link("stranger", 1, 1, False, [], "epoch")
BATCH = Batch.build(b"s" * 16, "orders/x", 1, [b"x"], time_us=0)
SOURCE = b"q" * 16
FORWARD = Forward(BATCH.head.length, "stranger", "closest", True, 1, 0, ["stranger"])


class Stranger:
    """A peer that claims to be a node."""

    def __init__(self, node: Node) -> None:
        self.link = NodeConnection(node.urls[0], "stranger", self, node.config, role="node")
        self.got: list[Item] = []
        self.reasons: list[str] = []
        """The reasons that the node gave when it closed a connection."""

    def connected(self, welcome: Welcome) -> None:
        """Nothing to do."""

    def disconnected(self) -> None:
        self.reasons.append(self.link.goodbye_text)

    def received(self, items: list[Item]) -> None:
        self.got += items

    @property
    def is_answered(self) -> bool:
        return any(isinstance(item, Answer) for item in self.got)


NAME_REASON = "a node's name must have 1 to 255 printable characters"
OWN_REASON = "both nodes are called 'near': give each a name of its own (node.name)"
PATTERN_REASON = "pattern 'a//b' has an empty segment; put one '/' between segments and none at the ends"
MODE_REASON = "'some' is not a kind of subscription"
COST_REASON = "the cost of a link must be from 1 to 1000000"
DISTRIBUTION_REASON = "'odd' is not a distribution of events with outcomes"
UNANNOUNCED = "stranger sent batches that were not announced: dropped"
NUMBER_REASON = (
    "malformed frame: a message can't be read (Expected `int` >= -1 - at `$[1]`), at 3 bytes; the sender is not reknit "
    "or is broken"
)
SEQ_REASON = (
    "malformed frame: a message can't be read (Expected `int` >= 1 - at `$[4]`), at 32 bytes; the sender is not reknit "
    "or is broken"
)
LOGGED: list[tuple[str, list[Message | bytes], str, list[str]]] = [
    ("nothing before a link", [LinkState("x", 1, 1, {}), FORWARD, bytes(BATCH.data), Got(3), Pull("", -1)], "", []),
    ("a name that is none", [Link("", 1, 1, False, [], "")], NAME_REASON, []),
    ("our own name", [Link("near", 1, 1, False, [], "")], OWN_REASON, []),
    ("a pattern that is none", [HELLO, Announce("stranger", 1, 2, [("a//b", "any")], [], True)], PATTERN_REASON, []),
    ("a mode that is none", [HELLO, Announce("stranger", 1, 2, [("a", "some")], is_whole=True)], MODE_REASON, []),
    ("a cost that is none", [HELLO, LinkState("stranger", 1, 2, {"near": 0})], COST_REASON, []),
    ("a distribution that is none", [HELLO, Forward(8, "x", "odd", True, 1, 0, [])], DISTRIBUTION_REASON, []),
    ("outcomes of nothing", [HELLO, Returned([Return("a", b"s" * 16, RangeOutcome(1, 1 << 60, 5), ["x"])])], "", []),
    ("positions that are none", [HELLO, Got(-1), Got(1 << 62), Pull("other", 1 << 60), Pull("", -1)], "", []),
    ("unknown nodes", [HELLO, AskWhole("nobody"), Beat([("x", 1 << 62, 0, 5)]), Beat([])], "", []),
    ("batches without a word", [HELLO, bytes(BATCH.data)], "", [UNANNOUNCED]),
    ("a delivery that nobody wants", [HELLO, FORWARD, bytes(BATCH.data)], "", []),
    ("a carry", [HELLO, Carry(BATCH.head.length, 7, [(b"x" * 16, "y")]), bytes(BATCH.data), Carry(0, -1, [])], "", []),
    ("a want from seq 0", [Want(b"w" * 16, "orders/x", True, 0, 1)], SEQ_REASON, []),
    ("odd wants", [Want(b"w" * 16, "a//b", True, 1, 1 << 60), Want(b"x" * 16, "orders/x", True, 9, 3)], "", []),
    ("odd bridges", [Via(b"v" * 16, ["x"] * 100), Skip("plain/x", SOURCE, 5, 5, ""), Skip("a//b", SOURCE, 1, 2, "")],
     "", []),
    ("a number that is none", [HELLO, wrap(KIND_MESSAGE, msgspec.msgpack.encode([52, -5]))], NUMBER_REASON, []),
]  # fmt: skip
"""The stranger's messages, the reason with which the node dismisses it ("" if it does not), and the node's log."""


@pytest.mark.parametrize(("what", "says", "reason", "logged"), LOGGED, ids=[row[0] for row in LOGGED])
def test_a_stranger_does_no_harm(
    what: str, says: list[Message | bytes], reason: str, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        broken: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context))
        async with build_node(config("near")) as node, build_node(config("far", node.urls[0])) as other:
            await until(lambda: "far" in node.links.routes.reachable())
            stranger = Stranger(node)
            await stranger.link.open(PATIENCE_S)
            stranger.link.send_buffers([one if isinstance(one, bytes) else encode(one) for one in says])
            if reason:
                await until(lambda: bool(stranger.reasons))
            else:
                stranger.link.send(Ask(1, "links"))
                await until(lambda: stranger.is_answered)
            assert stranger.reasons == ([reason] if reason else [])
            await works(node)
            await carries(node, other)
            await stranger.link.close()
        assert broken == []

    run(test)
    assert [record for record in caplog.records if record.exc_info] == []
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    said = [record.getMessage() for record in loud if record.name == "reknit.node"]
    closing = [text for text in said if text.startswith("closing the connection of stranger")]
    assert [text.endswith(f": {reason}") for text in closing] == ([True] if reason else [])
    assert [text for text in said if text not in closing] == logged


def config(name: str, *links: str) -> Config:
    return Config(
        node=NodeSettings(name=name, listen=("tcp://127.0.0.1:0",)),
        journal=JournalSettings(kind="memory"),
        links=LinkSettings(to=links, timeout_s=60.0),
        topics=(TopicSettings(pattern=Pattern("orders/**"), distribution="closest"),),
    )


async def works(node: Node) -> None:
    """A client of this node publishes, and gets the outcome."""
    async with connect(node.urls[0]) as session, session.subscribe("orders/x") as events:
        sender = session.publisher("orders/x", outcome=True)
        said: asyncio.Future[Any] = asyncio.ensure_future(sender.publish(b"fine"))
        while (await anext(events)).payload != b"fine":
            pass
        await anext_or_done(events, said)
        assert said.result() is Outcome.ACCEPTED


async def carries(node: Node, other: Node) -> None:
    """The link between two nodes carries events, with outcomes and without."""
    async with (
        connect(node.urls[0]) as here,
        connect(other.urls[0]) as there,
        there.subscribe("plain/x") as plain,
        there.subscribe("orders/far") as orders,
    ):
        routes = node.links.routes
        await until(lambda: routes.destinations("plain/x", "journal") == ("far",))
        await until(lambda: routes.destinations("orders/far", "any") == ("far",))
        await here.publish("plain/x", b"fine")
        assert (await anext(plain)).payload == b"fine"
        said = asyncio.ensure_future(here.publisher("orders/far", outcome=True).publish(b"far"))
        assert (await anext(orders)).payload == b"far"
        await anext_or_done(orders, said)
        assert said.result() is Outcome.ACCEPTED


async def anext_or_done(events: Any, said: asyncio.Future[Any]) -> None:
    """Asking for the next event accepts the last one."""
    asking = asyncio.ensure_future(anext(events))
    await said
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)

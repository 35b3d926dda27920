"""How much a node does for one event: counted in function calls, which do not depend on how busy the machine is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from reknit.batch import Batch
from reknit.config import Config, JournalSettings, NodeSettings
from reknit.credentials import NO_CREDENTIALS
from reknit.frame import Buffer
from reknit.node.node import Node
from reknit.server import build_node
from reknit.wire.codec import Decoder, Frames, Item, encode
from reknit.wire.messages import VERSION, Ack, Declare, Deliver, Hello, Start, Subscribe
from tests.node.fabric import run

SOURCE = b"s" * 16
TOPIC = "plant/line1/temp"
WARM, MEASURED = 20, 30
CALLS_MAX = 300
"""For an event with one subscriber, from its bytes to the bytes of its acknowledgement and its delivery (it was 386)."""
CALLS_OF_ANOTHER_MAX = 30
"""For each further subscriber of the same pattern (it was 42)."""


class Wire:
    """A connection without a socket: it notes what the node sends."""

    peer, certified, is_inside, door = "a test", NO_CREDENTIALS, False, "tcp"
    sent_at = 0.0
    held_bytes = 0

    def __init__(self, node: Node) -> None:
        self.sent: list[Buffer] = []
        self._node = node
        self._decoder = Decoder()
        node.opened(self)
        self.gives(Hello(VERSION, "test"))

    @property
    def received_at(self) -> float:
        return asyncio.get_running_loop().time()

    def gives(self, *messages: Any) -> None:
        self.gives_bytes(b"".join(map(encode, messages)))

    def gives_bytes(self, data: bytes) -> None:
        self._node.received(self, self._decoder.feed(data))

    def send(self, buffers: Sequence[Buffer]) -> None:
        self.sent += buffers

    def items(self) -> list[Item]:
        sent, self.sent = b"".join(self.sent), []
        return Decoder().feed(sent)

    def close(self) -> None:
        """Nothing to close."""

    abort = pause_reading = resume_reading = close


def batches() -> list[bytes]:
    return [
        bytes(Batch.build(SOURCE, TOPIC, seq, [b"21.5"], 0).data) for seq in range(1, WARM + MEASURED + 1)
    ]


async def calls_of_an_event(subscribers: int) -> int:
    """The function calls of a warm node for an event. All of its subscribers get it, and its publisher is told.

    It is the least of several, so that chores which a slow machine has to do meanwhile do not count.
    """
    settings = NodeSettings(name="a", listen=("tcp://127.0.0.1:0",))
    async with build_node(Config(node=settings, journal=JournalSettings(kind="memory"))) as node:
        publisher, others = Wire(node), [Wire(node) for _ in range(subscribers)]
        publisher.gives(Declare(SOURCE, TOPIC))
        for wire in others:
            wire.gives(Subscribe(1, "plant/**", "", Start(), 1 << 30))
        data, count, counts = batches(), 0, list[int]()
        for one in data[:WARM]:
            publisher.gives_bytes(one)
            await asyncio.sleep(0)
        for wire in (publisher, *others):
            wire.items()

        def called(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(called)
        try:
            for one in data[WARM:]:
                count = 0
                publisher.gives_bytes(one)
                await asyncio.sleep(0)
                counts.append(count)
        finally:
            sys.setprofile(None)
        acks = [item for item in publisher.items() if isinstance(item, Ack)]
        assert [ack.seq for ack in acks] == [*range(WARM + 1, WARM + MEASURED + 1)]
        for wire in others:
            items = wire.items()
            assert [type(item) for item in items] == [Deliver, Frames] * MEASURED
        return min(counts)


def test_an_event_that_comes_alone_costs_a_bounded_number_of_calls() -> None:
    async def test() -> None:
        assert await calls_of_an_event(1) < CALLS_MAX

    run(test)


def test_subscribers_of_one_pattern_share_most_of_the_work() -> None:
    async def test() -> None:
        few, many = await calls_of_an_event(1), await calls_of_an_event(41)
        assert (many - few) / 40 < CALLS_OF_ANOTHER_MAX

    run(test)

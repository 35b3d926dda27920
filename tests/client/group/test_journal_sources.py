"""What a member brings of another one to its node: from which event on, and after some that the node refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from reknit.batch import Batch
from reknit.client.group.journal import GroupJournal
from reknit.client.message_router import MessageRouter
from reknit.outcome import Code
from reknit.protocol.machine import Connected, Disconnected
from reknit.wire.messages import Ack, Refuse

SOURCE, TOPIC = b"s" * 16, "group/robots"


class FakeNode:
    """A router and its connection. `known` is what the node answers, and `heard` the events that it was sent."""

    is_up = True

    def __init__(self, *known: bytes) -> None:
        self.known = {source.hex(): 1 for source in known}
        self.connection = self
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.heard: list[tuple[int, int]] = []
        self.publisher: Any = None

    def add_publisher(self, publisher: Any) -> None:
        self.publisher = publisher
        publisher.receive(Connected("epoch"))

    def remove_publisher(self, publisher: Any) -> None:
        """The group was left."""

    def send(self, *messages: object) -> None:
        """Only events are of interest."""

    def send_buffers(self, buffers: list[Any]) -> None:
        batches = [Batch.parse(data) for data in buffers]
        self.heard += [(batch.first, batch.stop) for batch in batches]

    async def ask(self, what: str, **args: Any) -> dict[str, int]:
        self.asked.append((what, args))
        return self.known


def batch(first: int, count: int = 1) -> Batch:
    return Batch.build(SOURCE, TOPIC, first, [b"x"] * count, time_us=0)


def journal_at(node: FakeNode, skip_s: float = 0.0) -> GroupJournal:
    router = cast(MessageRouter, node)
    return GroupJournal(router, TOPIC, ask=node.ask, skip_s=skip_s, window_bytes=1 << 20)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110  (there is no one event to wait for)
            await asyncio.sleep(0)


def test_events_after_refused_ones_are_brought() -> None:
    async def main() -> None:
        node = FakeNode()
        journal = journal_at(node)
        journal.put(batch(1, 2))
        journal.put(batch(3))
        assert node.heard == [(1, 3), (3, 4)]
        node.publisher.receive(Refuse(SOURCE, 1, 3, Code.INVALID_ARGUMENT, "its time is in the future"))
        await until(lambda: node.heard[2:] == [(3, 4)])
        assert node.asked == [("skip", {"topic": TOPIC, "source": SOURCE.hex(), "start": 1, "stop": 3})]
        assert node.publisher.unstored_bytes == batch(3).head.length
        node.publisher.receive(Ack(SOURCE, 3))
        await node.publisher.flush()

    asyncio.run(main())


@pytest.mark.parametrize("known", [(SOURCE,), ()])
def test_a_member_that_joined_later_asks_whether_the_node_knows_the_source(known: tuple[bytes, ...]) -> None:
    """If the node does not, others have time to bring the first events."""

    async def main() -> None:
        node = FakeNode(*known)
        journal = journal_at(node)
        journal.put(batch(5))
        assert node.heard == []
        await until(lambda: node.heard == [(5, 6)])
        assert node.asked == [("checkpoint", {"pattern": TOPIC})]

    asyncio.run(main())


def test_the_node_is_asked_again_after_a_reconnection() -> None:
    async def main() -> None:
        node = FakeNode()
        journal = journal_at(node, skip_s=3600.0)
        journal.put(batch(5))
        await until(lambda: len(node.asked) == 1)
        node.publisher.receive(Disconnected())
        node.known = {SOURCE.hex(): 5}
        node.publisher.receive(Connected("epoch"))
        await until(lambda: node.heard == [(5, 6)])
        node.publisher.receive(Disconnected())
        node.publisher.receive(Ack(SOURCE, 4))
        node.publisher.receive(Connected("epoch"))
        assert node.heard == [(5, 6), (5, 6)], "it knows the source"
        assert len(node.asked) == 2
        await journal.close(0.0)

    asyncio.run(main())

"""Nodes and sessions on one loop, over real TCP, and a network that loses on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from reknit.batch import Batch
from reknit.client.publish.publisher import Publisher
from reknit.client.session import Session, connect
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, JournalSettings, NodeSettings, RecoverySettings, TransportSettings
from reknit.node.node import Node
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.server import build_node

TOPIC = "plant/temp"
SOURCE = b"p" * 16
QUICK = TransportSettings(reconnect_backoff_s_min=0.01, reconnect_backoff_s_max=0.05)
CLIENT = Config(transport=QUICK)


def config(port: int = 0, **recovery: Any) -> Config:
    """A node's, with its journal in memory."""
    return Config(
        node=NodeSettings(name="test", listen=(f"tcp://127.0.0.1:{port}",)),
        journal=JournalSettings(kind="memory"),
        transport=QUICK,
        recovery=RecoverySettings(**recovery),
    )


@asynccontextmanager
async def fabric(*configs: Config) -> AsyncIterator[list[Node]]:
    """Some nodes."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(build_node(one)) for one in configs or (config(),)]


def client(node: Node, **options: Any) -> Session:
    return connect(node.urls[0], config=CLIENT, **options)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(150):
            await test()

    asyncio.run(limited())


async def take(events: Subscription, count: int) -> list[int]:
    """The numbers of the next `count` events, which are their payloads."""
    return [int((await anext(events)).payload) for _ in range(count)]


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def settled_rows(node: Node) -> list[dict[str, Any]]:
    """The ledger of a node, once nothing is in flight."""
    while any(row["in_flight"] for row in await node.figures.ledger()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return await node.figures.ledger()


class Losing:
    """Loses the batches that are delivered to a subscription, as a network does, while `is_on`."""

    def __init__(self, events: Subscription, session: Session) -> None:
        self.session = session
        """The session of the subscription."""
        self._receive = events.receive
        self.is_on = False
        self.lost: list[Batch] = []
        events.receive = self.receive  # type: ignore[method-assign]

    @property
    def count(self) -> int:
        return sum(batch.count for batch in self.lost)

    def receive(self, message: subscribing.Input) -> None:
        if self.is_on and isinstance(message, subscribing.Delivered):
            self.lost += message.batches
        else:
            self._receive(message)


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def made(first: int, stop: int, source: bytes = SOURCE) -> Batch:
    """Events `[first, stop)` of a source; a payload is the event's seq."""
    return Batch.build(source, TOPIC, first, numbers(first, stop), 0)


class Told:
    """Records the losses that a subscriber was told."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.reasons: set[str] = set()

    def __call__(self, report: subscribing.LossReport) -> None:
        self.ranges.append((report.start, report.stop))
        self.reasons.add(report.reason)


async def lose(losing: Losing, publisher: Publisher, first: int, stop: int) -> None:
    """Publish `[first, stop)`, which do not reach the subscriber."""
    before = losing.count
    losing.is_on = True
    await publisher.publish_many(numbers(first, stop))
    await until(lambda: losing.count - before == stop - first)
    losing.is_on = False


@asynccontextmanager
async def flowing(
    on_lost: Told | None = None, cache: bool = True, heartbeat_s: float | None = None, **wanted: Any
) -> AsyncIterator[tuple[Subscription, Publisher, Losing]]:
    """A node, a publisher and a subscriber that has got the first event, and may lose the next ones."""
    async with (
        fabric() as [node],
        client(node) as session,
        session.subscribe(TOPIC, on_lost=on_lost, **wanted) as events,
    ):
        publisher = session.publisher(TOPIC, cache=cache, heartbeat_s=heartbeat_s)
        await publisher.publish(b"1")
        assert await take(events, 1) == [1]
        yield events, publisher, Losing(events, session)


async def fed(node: Node, *batches: Batch) -> None:
    """Give batches into a node, as a relay or a gateway does; gaps are skipped."""
    feed = node.local_publisher("test", lambda batch: None)
    await feed.open()
    feed.put(list(batches))
    await until(lambda: feed.unacked_bytes == 0)
    await feed.close()

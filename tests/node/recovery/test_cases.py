"""The cases of recovery by their numbers, over real TCP, where the machines alone do not show everything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from reknit.client.session import Session, connect
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, RecoverySettings
from reknit.node.node import Node
from reknit.processes.process import free_port
from reknit.protocol.recovery.alignment import Digest
from reknit.protocol.recovery.cache import NO_SOURCE, CacheBounds, MemoryCache
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.server import build_node, make_aligner
from reknit.topic import Pattern
from reknit.wire.recovery import Heartbeat, Offer, Recover
from tests.node.fabric import (
    QUICK,
    TOPIC,
    Losing,
    Told,
    client,
    config,
    fabric,
    fed,
    flowing,
    lose,
    made,
    numbers,
    run,
    take,
    until,
)

pytestmark = pytest.mark.real

IMPATIENT = RecoverySettings(ask_timeout_s=0.1, patience_s=0.5, again_s=0.0, hold_events_max=10)


class Forgetting:
    """A node with its journal in memory that can be restarted: it has forgotten everything then."""

    def __init__(self) -> None:
        self._config = config(free_port())
        self.node = build_node(self._config)

    async def __aenter__(self) -> Forgetting:
        await self.node.start()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.node.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await self.node.stop()

    async def start(self) -> None:
        self.node = build_node(self._config)
        await self.node.start()


@asynccontextmanager
async def hanging() -> AsyncIterator[str]:
    """The address of a cache that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_case_06_what_a_cache_over_tcp_let_go_is_lost_and_what_it_holds_is_not() -> None:
    async def test() -> None:
        told = Told()
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(Forgetting())
            publishing, keeping, reading = [
                await stack.enter_async_context(client(hub.node)) for _ in range(3)
            ]
            held = MemoryCache(Pattern(TOPIC), CacheBounds(events_max=1))
            events = await stack.enter_async_context(reading.subscribe(TOPIC, on_lost=told))
            publisher = publishing.publisher(TOPIC, cache=False)
            await publisher.publish(b"1")
            assert await take(events, 1) == [1]
            losing = Losing(events, reading)
            await lose(losing, publisher, 2, 5)
            for batch in losing.lost:
                held.put(batch, 0)
            keeping.router.offer_cache(held, Offer(TOPIC))
            await hub.restart()
            await until(lambda: all(one.connection.is_up for one in (publishing, keeping, reading)))
            await publisher.publish(b"5")
            assert await take(events, 2) == [4, 5]
            assert told.ranges == [(2, 4)]

    run(test)


def test_case_07_what_a_publisher_published_while_apart_over_tcp_comes_first() -> None:
    async def test() -> None:
        async with (
            Forgetting() as hub,
            client(hub.node) as session,
            client(hub.node) as reader,
            reader.subscribe(TOPIC, history=True) as events,
        ):
            publisher = session.publisher(TOPIC)
            await hub.stop()
            await until(lambda: not session.connection.is_up)
            kept = publisher.publish_many(numbers(1, 4))
            assert not kept.done()
            await hub.start()
            await kept
            await publisher.publish(b"4")
            assert await take(events, 4) == [1, 2, 3, 4]

    run(test)


def recording(node: Node) -> list[Recover]:
    """The requests that a node gets from now on."""
    asked: list[Recover] = []
    take_all = node.caches.take

    def take_one(message: Any, peer: Any) -> None:
        if isinstance(message, Recover):
            asked.append(message)
        take_all(message, peer)

    node.caches.take = take_one  # type: ignore[method-assign]
    return asked


def test_case_08_over_tcp_exactly_the_ranges_that_the_other_has_more_are_asked_for() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two]:
            await fed(one, made(1, 3), made(6, 10), made(12, 15))
            await fed(two, made(1, 3), made(6, 8))
            asked, back = recording(one), recording(two)
            forth, other_way = make_aligner(two, one.urls[0]), make_aligner(one, two.urls[0])
            assert await forth.align() == 5
            assert [message.ranges for message in asked] == [[(8, 10), (12, 15)]]
            assert await other_way.align() == 0, "what only I have is not asked for"
            assert back == []
            await forth.stop()
            await other_way.stop()

    run(test)


def test_case_08_over_tcp_digests_of_different_configurations_are_not_compared() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two]:
            await fed(one, made(1, 10))
            asked = recording(one)

            async def compare(args: dict[str, Any]) -> Digest:
                return Digest("office/**", 7)

            one.caches.aligned.compare = compare  # type: ignore[method-assign]
            aligner = make_aligner(two, one.urls[0])
            assert await aligner.align() == 0
            assert asked == []
            await aligner.stop()

    run(test)


def test_case_12_over_tcp_one_report_for_nine_thousand_lost_then_the_rest() -> None:
    async def test() -> None:
        told = Told()
        async with (
            Forgetting() as hub,
            client(hub.node) as session,
            client(hub.node) as reader,
            reader.subscribe(TOPIC, on_lost=told) as events,
        ):
            publisher = session.publisher(TOPIC, history=1_000)
            await publisher.publish(b"1")
            assert await take(events, 1) == [1]
            await lose(Losing(events, reader), publisher, 2, 10_002)
            await hub.restart()
            await publisher.publish(b"10002")
            rest = await take(events, 1_000)
            assert rest[-1] in (10_001, 10_002), "found by the heartbeat, or by the event after it"
            assert rest == list(range(rest[0], rest[0] + 1_000))
            assert told.ranges == [(2, rest[0])]

    run(test)


def test_case_13_over_tcp_a_plain_publisher_and_a_recovering_subscriber() -> None:
    async def test() -> None:
        told = Told()
        async with (
            fabric() as [node],
            client(node) as session,
            session.subscribe(TOPIC, on_lost=told) as events,
        ):
            for first in (1, 3, 5):
                session.connection.send_buffers([made(first, first + 2, NO_SOURCE).data])
            assert await take(events, 6) == [1, 2, 3, 4, 5, 6]
            assert told.ranges == []
            assert node.caches.questions == 0

    run(test)


def test_case_13_over_tcp_a_numbering_publisher_and_a_plain_subscriber() -> None:
    async def test() -> None:
        async with flowing(recover=False, heartbeat_s=0.05) as (events, publisher, _):
            await publisher.publish_many(numbers(2, 101))
            assert await take(events, 99) == list(range(2, 101))

    run(test)


def asking(node: Node, settings: RecoverySettings = IMPATIENT) -> Session:
    return connect(node.urls[0], config=Config(transport=QUICK, recovery=settings))


async def received(events: Subscription, count: int) -> list[int]:
    """The next so many, within the time of one question that is never answered."""
    async with asyncio.timeout(150):
        return await take(events, count)


def test_case_14_over_tcp_a_hung_cache_does_not_hold_live_events() -> None:
    async def test() -> None:
        slow = RecoverySettings(ask_timeout_s=3_600.0, patience_s=3_600.0)
        async with hanging() as url, fabric() as [node], asking(node, slow) as session:
            publisher = session.publisher(TOPIC)
            await publisher.publish_many(numbers(1, 4))
            async with session.subscribe(TOPIC, history=True, caches=[url]) as events:
                assert await received(events, 3) == [1, 2, 3]
                await publisher.publish(b"4")
                assert await received(events, 1) == [4]

    run(test)


def test_case_14_over_tcp_a_gap_that_only_a_hung_cache_may_fill_holds_its_own_source_only() -> None:
    async def test() -> None:
        slow = RecoverySettings(ask_timeout_s=3_600.0, patience_s=3_600.0)
        async with (
            hanging() as url,
            fabric() as [node],
            asking(node, slow) as session,
            session.subscribe(TOPIC, caches=[url]) as events,
        ):
            await fed(node, made(1, 2), made(3, 4))
            await fed(node, made(101, 111, b"q" * 16))
            assert await received(events, 11) == [1, *range(101, 111)]

    run(test)


def test_case_15_over_tcp_a_heartbeat_during_the_outage_is_not_the_last() -> None:
    async def test() -> None:
        async with flowing(heartbeat_s=0.05) as (events, publisher, losing):
            receive, beats = events.receive, []

            def outage(message: subscribing.Input) -> None:
                if isinstance(message, Heartbeat):
                    beats.append(message.seq)
                    if len(beats) > 2:
                        receive(message)
                else:
                    receive(message)

            events.receive = outage  # type: ignore[method-assign]
            await lose(losing, publisher, 2, 5)
            assert await take(events, 3) == [2, 3, 4]
            assert len(beats) > 2

    run(test)


def test_over_tcp_what_is_let_go_behind_a_gap_comes_from_the_journal() -> None:
    async def test() -> None:
        told = Told()
        async with (
            hanging() as url,
            fabric() as [node],
            asking(node) as session,
            session.subscribe(TOPIC, on_lost=told, caches=[url]) as events,
        ):
            await fed(node, made(1, 2), *(made(seq, seq + 1) for seq in range(3, 101)))
            assert await take(events, 99) == [1, *range(3, 101)]
            assert told.ranges == [(2, 3)]

    run(test)

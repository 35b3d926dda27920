"""The Zenoh gateway with real Zenoh sessions, on endpoints of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

zenoh = pytest.importorskip("zenoh")

from reknit.client.session import Session  # noqa: E402
from reknit.gateway.zenoh import ZenohGateway, zenoh_config  # noqa: E402
from reknit.gateway.zenoh_samples import is_from_zenoh  # noqa: E402
from reknit.node.node import Node  # noqa: E402
from reknit.testing.processes import free_port  # noqa: E402
from tests.recovery.fabric import client, config, numbers, run, take, until  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

KEY = "plant/temp"


@asynccontextmanager
async def joined(port: int | None = None, **recovery: Any) -> AsyncIterator[tuple[Node, Session, Any]]:
    """A node in a Zenoh network, a session with it, and a Zenoh session."""
    port = port or free_port()
    endpoint = f"tcp/127.0.0.1:{port}"
    async with Node(config(zenoh_listen=(endpoint,), **recovery)) as node, client(node) as session:
        other = await asyncio.to_thread(zenoh.open, zenoh_config([], [endpoint]))
        try:
            yield node, session, other
        finally:
            await asyncio.to_thread(other.close)


def gateway(node: Node) -> ZenohGateway:
    return next(one for one in node._relays if isinstance(one, ZenohGateway))


class Received:
    """What a Zenoh subscriber got."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sns: list[int] = []

    def __call__(self, sample: Any) -> None:
        self.numbers.append(int(sample.payload.to_bytes()))
        self.sns.append(sample.source_info.source_sn if sample.source_info is not None else -1)


async def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await asyncio.to_thread(function, *args, **options)


def test_a_plain_zenoh_publishers_samples_become_events() -> None:
    async def test() -> None:
        async with joined() as (_, session, other), session.subscribe("plant/**", history=True) as events:
            publisher = await call(
                other.declare_publisher, KEY, congestion_control=zenoh.CongestionControl.BLOCK
            )
            await until_matching(publisher)
            for number in range(1, 101):
                await call(publisher.put, b"%d" % number)
            first = await anext(events)
            assert (first.topic, first.payload, first.seq) == (KEY, b"1", 1)
            assert is_from_zenoh(first.source)
            assert await take(events, 99) == list(range(2, 101))

    run(test)


async def until_matching(publisher: Any) -> None:
    await until(lambda: publisher.matching_status)


def test_events_reach_a_plain_zenoh_subscriber_with_their_numbers() -> None:
    async def test() -> None:
        async with joined() as (_, session, other):
            received = Received()
            await call(other.declare_subscriber, "plant/*", received)
            publisher = session.publisher(KEY)
            await asyncio.sleep(0.3)  # Zenoh tells the gateway of its subscriber
            await publisher.publish_many(numbers(1, 1_001))
            await until(lambda: len(received.numbers) == 1_000)
            assert received.numbers == list(range(1, 1_001))
            assert received.sns == list(range(1_000))

    run(test)


def test_what_came_from_zenoh_is_not_sent_back() -> None:
    async def test() -> None:
        async with joined() as (node, session, other):
            received = Received()
            await call(other.declare_subscriber, "plant/**", received)
            async with session.subscribe("plant/**", history=True) as events:
                publisher = await call(other.declare_publisher, KEY)
                await until_matching(publisher)
                await call(publisher.put, b"1")
                assert await take(events, 1) == [1]
                await session.publish("plant/other", b"2")
                await until(lambda: 2 in received.numbers)
                assert received.numbers == [1, 2], "its own, once, and ours"
                assert gateway(node).put == 1

    run(test)


def test_patterns_are_key_expressions_on_both_sides() -> None:
    async def test() -> None:
        async with (
            joined(zenoh_pattern="plant/*/temp$*") as (node, session, other),
            session.subscribe("**", history=True) as events,
        ):
            for key in ("office/1/temp", "plant/1/light", "plant/1/temperature"):
                await call(other.put, key, b"7", congestion_control=zenoh.CongestionControl.BLOCK)
            while gateway(node).taken == 0:
                await call(other.put, "plant/2/temp-b", b"8")
                await asyncio.sleep(0.05)
            event = await anext(events)
            assert event.topic.startswith("plant/")
            assert "temp" in event.topic

    run(test)


def test_source_information_is_kept() -> None:
    async def test() -> None:
        async with joined() as (_, session, other), session.subscribe("plant/**", history=True) as events:
            publisher = await call(
                other.declare_publisher, KEY, congestion_control=zenoh.CongestionControl.BLOCK
            )
            await until_matching(publisher)
            for sn in (6, 7, 8):
                info = zenoh.SourceInfo(publisher.id, sn)
                await call(publisher.put, b"%d" % sn, source_info=info)
            got = [await anext(events) for _ in range(3)]
            assert [event.seq for event in got] == [7, 8, 9]
            assert len({event.source for event in got}) == 1

    run(test)


def advanced(session: Any, samples: int, **options: Any) -> Any:
    return zenoh.ext.declare_advanced_publisher(
        session,
        KEY,
        congestion_control=zenoh.CongestionControl.BLOCK,
        cache=zenoh.ext.CacheConfig(samples),
        publisher_detection=True,
        sample_miss_detection=zenoh.ext.MissDetectionConfig(),
        **options,
    )


def test_the_history_of_an_advanced_publisher_comes_when_the_gateway_joins() -> None:
    async def test() -> None:
        port = free_port()
        listen = zenoh_config([f"tcp/127.0.0.1:{port}"], [])
        listen.insert_json5("timestamping/enabled", "true")
        other = await call(zenoh.open, listen)
        publisher = await call(advanced, other, 100)
        for number in range(1, 51):
            await call(publisher.put, b"%d" % number)
        async with (
            Node(config(zenoh_connect=(f"tcp/127.0.0.1:{port}",))) as node,
            client(node) as session,
            session.subscribe("plant/**", history=True) as events,
        ):
            assert await take(events, 50) == list(range(1, 51))
            await call(publisher.put, b"51")
            assert await take(events, 1) == [51]
        await call(other.close)

    run(test)


def test_a_gap_is_recovered_from_an_advanced_publishers_cache() -> None:
    async def test() -> None:
        port = free_port()
        listen = zenoh_config([f"tcp/127.0.0.1:{port}"], [])
        listen.insert_json5("timestamping/enabled", "true")
        other = await call(zenoh.open, listen)
        publisher = await call(advanced, other, 1_000)
        async with Node(config(zenoh_connect=(f"tcp/127.0.0.1:{port}",))) as node, client(node) as session:
            joined_ = gateway(node)
            async with session.subscribe("plant/**", history=True) as events:
                await call(publisher.put, b"1")
                assert await take(events, 1) == [1]
                queue = joined_._queue
                joined_._queue = lambda samples: None  # type: ignore[method-assign]
                for number in range(2, 101):
                    await call(publisher.put, b"%d" % number)
                await asyncio.sleep(0.3)
                joined_._queue = queue  # type: ignore[method-assign]
                await call(publisher.put, b"101")
                assert await take(events, 100) == list(range(2, 102))
                assert joined_.lost == 0
        await call(other.close)

    run(test)


def test_a_gap_that_zenoh_can_not_fill_is_lost_and_the_rest_follows() -> None:
    async def test() -> None:
        lost: list[tuple[int, int]] = []
        async with joined() as (node, session, other):
            wanted = session.subscribe(
                "plant/**", history=True, on_lost=lambda report: lost.append((report.start, report.stop))
            )
            async with wanted as events:
                block = zenoh.CongestionControl.BLOCK
                publisher = await call(other.declare_publisher, KEY, congestion_control=block)
                await until_matching(publisher)
                for sn in (0, 1, 5, 6):
                    info = zenoh.SourceInfo(publisher.id, sn)
                    await call(publisher.put, b"%d" % sn, source_info=info)
                assert await take(events, 4) == [0, 1, 5, 6]
                assert lost == [(3, 6)]
                assert gateway(node).lost == 3

    run(test)


def test_an_advanced_zenoh_subscriber_recovers_our_events_from_the_journal() -> None:
    async def test() -> None:
        async with joined() as (node, session, other):
            received = Received()
            misses: list[Any] = []
            subscriber = await call(
                zenoh.ext.declare_advanced_subscriber,
                other,
                "plant/**",
                received,
                recovery=zenoh.ext.RecoveryConfig(heartbeat=True),
            )
            listener = await call(subscriber.sample_miss_listener, misses.append)
            publisher = session.publisher(KEY)
            await asyncio.sleep(0.5)
            await publisher.publish(b"1")
            await until(lambda: received.numbers == [1])
            hidden, put = gateway(node), gateway(node)._put
            hidden._put = lambda batches: None  # type: ignore[method-assign]
            await publisher.publish_many(numbers(2, 11))
            await asyncio.sleep(0.3)
            hidden._put = put  # type: ignore[method-assign]
            await publisher.publish(b"11")
            await until(lambda: len(received.numbers) >= 11)
            assert received.numbers == list(range(1, 12))
            assert misses == []
            assert listener is not None

    run(test)

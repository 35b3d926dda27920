"""The Zenoh gateway with real Zenoh sessions, on endpoints of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

zenoh = pytest.importorskip("zenoh")

from reknit.client.session import Session  # noqa: E402
from reknit.config import SecuritySettings  # noqa: E402
from reknit.gateway.zenoh.samples import is_from_zenoh  # noqa: E402
from reknit.gateway.zenoh.threads import call  # noqa: E402
from reknit.node.node import Node  # noqa: E402
from reknit.processes.process import free_port  # noqa: E402
from reknit.server import build_node  # noqa: E402
from tests.gateway.zenoh.network import BLOCK, KEY, Peer, Received, gateway, joined  # noqa: E402
from tests.node.fabric import Told, client, config, numbers, run, take, until  # noqa: E402
from tests.tokens import write_tokens  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[Node, Session, Peer]]:
    """The same. The Zenoh network may publish the canary and read it; `ann` may do everything."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token"})
    allow = ("ann publish **", "ann subscribe **", "* publish canary/*", "anonymous subscribe canary/*")
    security = SecuritySettings(tokens_file=tokens, allow=allow)
    async with (
        build_node(replace(config(zenoh_listen=(endpoint,)), security=security)) as node,
        client(node, token="a-token") as session,
        Peer([], [endpoint]) as peer,
    ):
        yield node, session, peer


@asynccontextmanager
async def joining(samples: int, published: int = 0) -> AsyncIterator[tuple[Node, Session, Any]]:
    """An advanced Zenoh publisher that has put some samples, and a node that joins afterwards."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    async with Peer([endpoint], []) as peer:
        publisher = await peer.advanced(samples)
        for number in range(1, published + 1):
            await call(publisher.put, b"%d" % number)
        async with build_node(config(zenoh_connect=(endpoint,))) as node, client(node) as session:
            yield node, session, publisher


def test_a_plain_zenoh_publishers_samples_become_events() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer), session.subscribe("plant/**", history=True) as events:
            publisher = await peer.publisher()
            await peer.reaches(node)
            for number in range(1, 101):
                await call(publisher.put, b"%d" % number)
            first = await anext(events)
            assert (first.topic, first.payload, first.seq) == (KEY, b"1", 1)
            assert is_from_zenoh(first.source)
            assert await take(events, 99) == list(range(2, 101))

    run(test)


def test_events_reach_a_plain_zenoh_subscriber_with_their_numbers() -> None:
    async def test() -> None:
        async with joined() as (_, session, peer):
            received = Received()
            await peer.subscriber("plant/*", received)
            await peer.is_reached_by(session)
            publisher = session.publisher(KEY)
            await publisher.publish_many(numbers(1, 1_001))
            await until(lambda: len(received.numbers) == 1_000)
            assert received.numbers == list(range(1, 1_001))
            assert received.sns == list(range(1_000))

    run(test)


def test_a_zenoh_network_publishes_and_reads_what_anonymous_may(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (node, session, peer):
            received = Received()
            await peer.subscriber("plant/**", received)
            publisher = await peer.publisher()
            await peer.reaches(node)
            await peer.is_reached_by(session)
            await call(publisher.put, b"1")
            await until(lambda: node.gate.refusals.totals() == {"anonymous": {"denied": 1}})
            assert KEY not in node.journal.topics()
            put = gateway(node).put
            await session.publish("plant/secret", b"2")
            await session.publish("canary/back", b"0")
            await until(lambda: gateway(node).put > put)
            assert received.numbers == [1], "its own, and none of ours"

    run(test)


def test_nobody_in_a_zenoh_network_publishes_below_reknit() -> None:
    async def test() -> None:
        async with joined() as (node, _, peer):
            publisher = await peer.publisher("reknit/audit")
            await peer.reaches(node)
            await call(publisher.put, b"forged")
            await until(lambda: node.gate.refusals.totals() == {"anonymous": {"denied": 1}})
            assert "reknit/audit" not in node.journal.topics()

    run(test)


def test_a_zenoh_network_over_the_quota_of_anonymous_waits_and_loses_nothing() -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        security = SecuritySettings(quotas=("anonymous events_per_s=50",))
        async with (
            build_node(replace(config(zenoh_listen=(endpoint,)), security=security)) as node,
            Peer([], [endpoint]) as peer,
        ):
            publisher = await peer.publisher()
            await peer.reaches(node)
            for number in range(100):
                await call(publisher.put, b"%d" % number)
            await until(
                lambda: (
                    node.journal.ledger.topics[KEY].events == 100 if KEY in node.journal.topics() else False
                )
            )
            assert node.figures.status()["quotas"]["anonymous"]["waits"] > 0

    run(test)


def test_what_came_from_zenoh_is_not_sent_back() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer):
            received = Received()
            await peer.subscriber("plant/**", received)
            await peer.is_reached_by(session)
            async with session.subscribe("plant/**", history=True) as events:
                publisher = await peer.publisher()
                await peer.reaches(node)
                await call(publisher.put, b"1")
                assert await take(events, 1) == [1]
                await session.publish("plant/other", b"2")
                await until(lambda: 2 in received.numbers)
                assert received.numbers == [1, 2], "its own, once, and ours"

    run(test)


def test_patterns_are_key_expressions_on_both_sides() -> None:
    async def test() -> None:
        async with (
            joined(zenoh_pattern="plant/*/temp$*") as (node, session, peer),
            session.subscribe("**", history=True) as events,
        ):
            for key in ("office/1/temp", "plant/1/light", "plant/1/temperature"):
                await call(peer.session.put, key, b"7", congestion_control=BLOCK)
            while gateway(node).taken == 0:
                await call(peer.session.put, "plant/2/temp-b", b"8")
                await asyncio.sleep(0.05)
            event = await anext(events)
            assert event.topic.startswith("plant/")
            assert "temp" in event.topic

    run(test)


async def put_numbered(publisher: Any, sns: list[int]) -> None:
    """Put samples with these numbers, which are their payloads too."""

    def put(sn: int) -> None:
        publisher.put(b"%d" % sn, source_info=zenoh.SourceInfo(publisher.id, sn))

    for sn in sns:
        await call(put, sn)


def test_source_information_is_kept() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer), session.subscribe("plant/**", history=True) as events:
            publisher = await peer.publisher()
            await peer.reaches(node)
            await put_numbered(publisher, [6, 7, 8])
            got = [await anext(events) for _ in range(3)]
            assert [event.seq for event in got] == [7, 8, 9]
            assert len({event.source for event in got}) == 1

    run(test)


def test_the_history_of_an_advanced_publisher_comes_when_the_gateway_joins() -> None:
    async def test() -> None:
        async with (
            joining(samples=100, published=50) as (_, session, publisher),
            session.subscribe("plant/**", history=True) as events,
        ):
            assert await take(events, 50) == list(range(1, 51))
            await call(publisher.put, b"51")
            assert await take(events, 1) == [51]

    run(test)


def test_a_gap_is_recovered_from_an_advanced_publishers_cache() -> None:
    async def test() -> None:
        async with (
            joining(samples=1_000, published=1) as (node, session, publisher),
            session.subscribe("plant/**", history=True) as events,
        ):
            joined_, hidden = gateway(node), list[Any]()
            assert await take(events, 1) == [1]
            add = joined_.queue.add
            joined_.queue.add = hidden.extend  # type: ignore[method-assign, assignment]
            for number in range(2, 101):
                await call(publisher.put, b"%d" % number)
            await until(lambda: len(hidden) == 99)
            joined_.queue.add = add  # type: ignore[method-assign]
            await call(publisher.put, b"101")
            assert await take(events, 100) == list(range(2, 102))
            assert joined_.lost == 0

    run(test)


@pytest.mark.parametrize("kind", ["heartbeat", "sporadic_heartbeat"])
def test_a_heartbeat_of_either_kind_shows_a_lost_tail(kind: str) -> None:
    async def test() -> None:
        async with joined() as (node, session, peer), session.subscribe(KEY, history=True) as events:
            publisher = await peer.advanced(100, is_detected=False, **{kind: 0.1})
            await peer.reaches(node)
            await call(publisher.put, b"1")
            assert await take(events, 1) == [1]
            queue, hidden = gateway(node).queue, list[Any]()
            put = queue.put
            queue.put = hidden.append  # type: ignore[method-assign, assignment]
            for number in (2, 3, 4):
                await call(publisher.put, b"%d" % number)
            await until(lambda: len(hidden) == 3)
            queue.put = put  # type: ignore[method-assign]
            assert await take(events, 3) == [2, 3, 4]

    run(test)


def test_a_gap_that_zenoh_can_not_fill_is_lost_and_the_rest_follows() -> None:
    async def test() -> None:
        plain, durable = Told(), Told()
        async with (
            joined() as (node, session, peer),
            session.subscribe("plant/**", history=True, on_lost=plain) as events,
            session.subscribe("plant/**", name="audit", on_lost=durable) as audited,
        ):
            publisher = await peer.publisher()
            await peer.reaches(node)
            await put_numbered(publisher, [0, 1, 5, 6])
            assert await take(events, 4) == await take(audited, 4) == [0, 1, 5, 6]
            await until(lambda: durable.ranges)
            assert plain.ranges == durable.ranges == [(3, 6)]
            assert gateway(node).lost == 3
            rows = [row for row in await node.figures.ledger() if row["topic"] == KEY]
            assert {row["subscriber"]: row["lost"] for row in rows}["audit"] == 3
            assert all(row["balanced"] for row in rows)

    run(test)


def test_an_advanced_zenoh_subscriber_recovers_our_events_from_the_journal() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer):
            received = Received()
            misses: list[Any] = []
            subscriber = await peer.declare(
                zenoh.ext.declare_advanced_subscriber,
                peer.session,
                "plant/**",
                received,
                recovery=zenoh.ext.RecoveryConfig(heartbeat=True),
            )
            await peer.declare(subscriber.sample_miss_listener, misses.append)
            await peer.is_reached_by(session)
            publisher = session.publisher(KEY)
            await publisher.publish(b"1")
            await until(lambda: received.numbers == [1])
            hiding, hidden = gateway(node).publishers, list[Any]()
            put = hiding.put
            hiding.put = hidden.extend  # type: ignore[method-assign, assignment]
            await publisher.publish_many(numbers(2, 11))
            await until(lambda: sum(batch.count for batch in hidden) == 9)
            hiding.put = put  # type: ignore[method-assign]
            await publisher.publish(b"11")
            await until(lambda: len(received.numbers) >= 11)
            assert received.numbers == list(range(1, 12))
            assert misses == []

    run(test)


def test_a_gateway_stops_while_zenoh_keeps_sending_and_asking() -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        async with Peer([endpoint], []) as peer:
            is_done = threading.Event()

            def keep_putting() -> None:
                while not is_done.is_set():
                    peer.session.put(KEY, b"1")
                    peer.session.get(f"{KEY}/@adv/pub/*/*/**?_sn=0..9", timeout=0.1)

            thread = threading.Thread(target=keep_putting, daemon=True)
            thread.start()
            try:
                for _ in range(3):
                    async with build_node(config(zenoh_connect=(endpoint,))) as node:
                        await until(lambda: gateway(node).taken > 100)
            finally:
                is_done.set()
                await call(thread.join, 10.0)

    run(test)

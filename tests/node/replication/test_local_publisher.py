"""Feeds: batches with sources of their own into a node, in order, whatever is missing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from reknit.protocol.replication.gap import Gap
from reknit.server import build_node
from tests.node.fabric import SOURCE, TOPIC, client, config, fabric, made, run, take, until

pytestmark = pytest.mark.real


def test_a_gap_right_behind_what_is_not_acknowledged_yet_is_found() -> None:
    async def test() -> None:
        gaps: list[tuple[int, int]] = []
        kept: list[int] = []

        def on_gap(gap: Gap) -> None:
            gaps.append((gap.start, gap.stop))
            feed.put_before([made(gap.start, gap.stop)])

        async with fabric() as [node], client(node) as session:
            feed = node.local_publisher("test", lambda batch: kept.append(batch.first), on_gap)
            await feed.open()
            feed.put([made(1, 3), made(6, 7), made(7, 8)])
            async with session.subscribe(TOPIC, history=True) as events:
                assert await take(events, 7) == list(range(1, 8))
            assert gaps == [(3, 6)]
            await until(lambda: feed.unacked_bytes == 0)
            assert kept == [1, 3, 6, 7]
            await feed.close()

    run(test)


def test_without_a_way_to_fill_it_a_gap_is_skipped() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            feed = node.local_publisher("test", lambda batch: None)
            await feed.open()
            feed.put([made(1, 3), made(6, 8)])
            async with session.subscribe(TOPIC, history=True, recover=False) as events:
                assert await take(events, 4) == [1, 2, 6, 7]
            await feed.close()

    run(test)


def test_a_feed_tells_how_far_a_source_has_got() -> None:
    async def test() -> None:
        async with fabric() as [node]:
            feed = node.local_publisher("test", lambda batch: None)
            await feed.open()
            assert await feed.last_seq(SOURCE, TOPIC) == 0
            feed.put([made(1, 6)])
            await until(lambda: feed.unacked_bytes == 0)
            assert await feed.last_seq(SOURCE, TOPIC) == 5
            await feed.close()

    run(test)


def test_a_publisher_within_the_process_opens_however_busy_the_node_is() -> None:
    """A link's publisher gave up while its node was busy for seconds, and nothing of that neighbour was stored again."""

    async def test() -> None:
        impatient = replace(config(), transport=replace(config().transport, hello_timeout_s=0.05))
        async with build_node(impatient) as node:
            feed = node.local_publisher("test", lambda batch: kept.append(batch.first))
            kept: list[int] = []
            busy = asyncio.create_task(keep_busy())
            await feed.open()
            await busy
            feed.put([made(1, 3)])
            await until(lambda: kept == [1])
            await feed.close()

    async def keep_busy() -> None:
        for _ in range(20):
            time.sleep(0.1)  # noqa: ASYNC251  a turn of the event loop that takes too long
            await asyncio.sleep(0)

    run(test)

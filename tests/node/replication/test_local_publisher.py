"""Feeds: batches with sources of their own into a node, in order, whatever is missing."""

from __future__ import annotations

import pytest

from reknit.protocol.replication.gap import Gap
from tests.node.fabric import SOURCE, TOPIC, client, fabric, made, run, take, until

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

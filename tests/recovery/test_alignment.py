"""Alignment of two nodes, on one loop."""

from __future__ import annotations

import pytest

from reknit.batch import Batch
from reknit.node.aligner import Aligner
from reknit.node.node import Node
from reknit.topic import Pattern
from tests.recovery.test_sessions import TOPIC, client, config, fabric, numbers, run, take, until

pytestmark = pytest.mark.real

SOURCE = b"p" * 16


def made(first: int, stop: int, source: bytes = SOURCE) -> bytes:
    return bytes(Batch.build(source, TOPIC, first, numbers(first, stop), 0).data)


def test_two_nodes_that_were_apart_exchange_only_what_differs() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            to_one.link.send_buffers([made(1, 101), made(1, 11, b"q" * 16)])
            to_two.link.send_buffers([made(1, 41), made(1, 11, b"q" * 16)])
            await until(lambda: _count(one) == 110 and _count(two) == 50)
            aligner = Aligner(two, one.urls[0])
            assert await aligner.align() == 60
            await until(lambda: _count(two) == 110)
            assert await aligner.align() == 0
            async with to_two.subscribe(TOPIC, history=True) as events:
                got = await take(events, 110)
                assert sorted(got) == sorted([*range(1, 101), *range(1, 11)])
            await aligner.stop()
            back = Aligner(one, two.urls[0])
            assert await back.align() == 0
            await back.stop()

    run(test)


def test_a_node_that_began_later_gets_the_older_part_for_who_recovers_from_it() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            to_one.link.send_buffers([made(1, 101)])
            to_two.link.send_buffers([made(50, 101)])
            await until(lambda: _count(one) == 100 and _count(two) == 51)
            aligner = Aligner(two, one.urls[0])
            assert await aligner.align() == 49
            held, _ = two.caches.holdings(Pattern("**"))
            assert held[TOPIC, SOURCE].ranges() == [(1, 101)]
            assert [b.first for b in two.caches.keeper.find(TOPIC, SOURCE, 1, 101, 1 << 20)] == [1, 50]
            await aligner.stop()

    run(test)


def test_an_empty_node_gets_everything() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one:
            for number in range(20):
                to_one.link.send_buffers([made(1, 51, bytes([number + 1]) * 16)])
            await until(lambda: _count(one) == 1_000)
            aligner = Aligner(two, one.urls[0])
            assert await aligner.align() == 1_000
            await until(lambda: _count(two) == 1_000)
            await aligner.stop()

    run(test)


def _count(node: Node) -> int:
    return sum(seqs.count for seqs in node.journal.ledger.published.values())

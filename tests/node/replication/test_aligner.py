"""Alignment of two nodes, on one loop."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from reknit.client.session import connect
from reknit.config import Config, NodeSettings, RecoverySettings, SecuritySettings
from reknit.errors import Refused
from reknit.node.node import Node
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.server import build_node, make_aligner, make_relay
from reknit.topic import Pattern
from tests.node.fabric import (
    CLIENT,
    QUICK,
    SOURCE,
    TOPIC,
    Told,
    client,
    config,
    fabric,
    fed,
    made,
    run,
    settled_rows,
    take,
    until,
)
from tests.tokens import write_tokens

pytestmark = pytest.mark.real


def test_two_nodes_that_were_apart_exchange_only_what_differs() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            to_one.connection.send_buffers([made(1, 101).data, made(1, 11, b"q" * 16).data])
            to_two.connection.send_buffers([made(1, 41).data, made(1, 11, b"q" * 16).data])
            await until(lambda: _count(one) == 110 and _count(two) == 50)
            aligner = make_aligner(two, one.urls[0])
            assert await aligner.align() == 60
            await until(lambda: _count(two) == 110)
            assert await aligner.align() == 0
            async with to_two.subscribe(TOPIC, history=True) as events:
                got = await take(events, 110)
                assert sorted(got) == sorted([*range(1, 101), *range(1, 11)])
            await aligner.stop()
            back = make_aligner(one, two.urls[0])
            assert await back.align() == 0
            await back.stop()

    run(test)


def test_a_node_that_began_later_gets_the_older_part_for_who_recovers_from_it() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            to_one.connection.send_buffers([made(1, 101).data])
            to_two.connection.send_buffers([made(50, 101).data])
            await until(lambda: _count(one) == 100 and _count(two) == 51)
            aligner = make_aligner(two, one.urls[0])
            assert await aligner.align() == 49
            held = await two.caches.aligned.holdings(Pattern("**"))
            assert held.get((TOPIC, SOURCE)).ranges() == [(1, 101)]
            assert [b.first for b in two.caches.keeper.find(TOPIC, SOURCE, 1, 101, 1 << 20)] == [1, 50]
            await aligner.stop()

    run(test)


def test_what_was_lost_and_is_found_by_an_alignment_stays_lost_to_who_went_on_behind_it() -> None:
    """A durable subscriber never gets it, so its end stays what it was told; who recovers gets it."""

    async def test() -> None:
        here, away = Told(), Told()
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            to_one.connection.send_buffers([made(1, 8).data])
            async with to_two.subscribe(TOPIC, name="away") as first:
                await fed(two, made(1, 3))
                assert await take(first, 2) == [1, 2]
            async with to_two.subscribe(TOPIC, name="here", history=True, on_lost=here) as events:
                await fed(two, made(6, 8))
                assert await take(events, 4) == [1, 2, 6, 7]
                await until(lambda: here.ranges and _count(one) == 7)
                aligner = make_aligner(two, one.urls[0])
                assert await aligner.align() == 3
                await aligner.stop()
                async with to_two.subscribe(TOPIC, name="away", on_lost=away) as second:
                    assert await take(second, 2) == [6, 7]
                    await until(lambda: away.ranges)
            assert here.ranges == away.ranges == [(3, 6)]
            ends = [(row["accepted"], row["lost"], row["balanced"]) for row in await settled_rows(two)]
            assert ends == [(4, 3, True), (4, 3, True)]
            async with to_two.subscribe(TOPIC, history=True) as events:
                assert await take(events, 7) == list(range(1, 8))

    run(test)


def test_an_empty_node_gets_everything() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one:
            for number in range(20):
                to_one.connection.send_buffers([made(1, 51, bytes([number + 1]) * 16).data])
            await until(lambda: _count(one) == 1_000)
            aligner = make_aligner(two, one.urls[0])
            assert await aligner.align() == 1_000
            await until(lambda: _count(two) == 1_000)
            await aligner.stop()

    run(test)


def _count(node: Node) -> int:
    return sum(seqs.count for seqs in node.journal.ledger.published.values())


def on_disk(folder: Path) -> Config:
    node = NodeSettings(name="test", data_dir=folder, listen=("tcp://127.0.0.1:0",))
    return Config(node=node, transport=QUICK)


def test_what_an_alignment_brought_survives_a_restart_and_serves_who_recovers(tmp_path: Path) -> None:
    async def test() -> None:
        async with fabric() as [one], client(one) as to_one:
            to_one.connection.send_buffers([made(1, 101).data])
            async with build_node(on_disk(tmp_path)) as two, client(two) as to_two:
                to_two.connection.send_buffers([made(50, 101).data])
                await until(lambda: _count(one) == 100 and _count(two) == 51)
                aligner = make_aligner(two, one.urls[0])
                assert await aligner.align() == 49
                await aligner.stop()
        async with build_node(on_disk(tmp_path)) as two, client(two) as session:
            assert _count(two) == 51, "the journal itself goes on, and is not rewritten"
            held = await two.caches.aligned.holdings(Pattern("**"))
            assert held.get((TOPIC, SOURCE)).ranges() == [(1, 101)]
            async with session.subscribe(TOPIC) as events:
                for seq in (20, 101):
                    events.receive(subscribing.Delivered([made(seq, seq + 1)], 0, 1, False))
                assert await take(events, 82) == list(range(20, 102))

    run(test)


def test_what_an_alignment_brought_is_history_for_who_asks_several_caches() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            to_one.connection.send_buffers([made(1, 101).data])
            to_two.connection.send_buffers([made(50, 101).data])
            await until(lambda: _count(one) == 100 and _count(two) == 51)
            aligner = make_aligner(two, one.urls[0])
            await aligner.align()
            await aligner.stop()
            async with (
                fabric() as [empty],
                client(empty) as session,
                session.subscribe(TOPIC, history=True, caches=[two.urls[0]]) as events,
            ):
                assert await take(events, 100) == list(range(1, 101))

    run(test)


def test_an_older_part_is_delivered_to_nobody_who_is_past_it() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one, client(two) as to_two:
            async with to_two.subscribe(TOPIC, name="audit") as events:
                to_one.connection.send_buffers([made(1, 101).data])
                to_two.connection.send_buffers([made(50, 101).data])
                assert await take(events, 51) == list(range(50, 101))
                aligner = make_aligner(two, one.urls[0])
                assert await aligner.align() == 49
                assert await aligner.align() == 0
                await aligner.stop()
                to_two.connection.send_buffers([made(101, 102).data])
                assert await take(events, 1) == [101]
            [row] = await two.figures.ledger()
            assert (row["published"], row["accepted"], row["balanced"]) == (52, 52, True)

    run(test)


def test_what_was_skipped_here_and_is_found_elsewhere_can_be_recovered_from_here() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [one, two], client(one) as to_one:
            to_one.connection.send_buffers([made(1, 10).data])
            await fed(two, made(1, 3), made(6, 10))
            await until(lambda: _count(one) == 9)
            aligner = make_aligner(two, one.urls[0])
            assert await aligner.align() == 3
            assert await aligner.align() == 0
            await aligner.stop()
            assert [b.first for b in two.caches.keeper.find(TOPIC, SOURCE, 1, 10, 1 << 20)] == [1, 3, 6]

    run(test)


def secured(folder: Path, **recovery: Any) -> tuple[Config, Config]:
    """A node that wants tokens, and one that has one."""
    tokens = write_tokens(folder / "tokens", {"ann": "secret"})
    rules = SecuritySettings(tokens_file=tokens, allow=("ann publish **", "ann subscribe **"), audit="off")
    there = dataclasses.replace(config(), security=rules)
    return there, dataclasses.replace(config(**recovery), security=SecuritySettings(token="secret"))


def test_relays_and_aligners_show_their_token(tmp_path: Path) -> None:
    async def test() -> None:
        there, here = secured(tmp_path)
        async with (
            fabric(there, here, config()) as [one, two, stranger],
            connect(one.urls[0], config=CLIENT, token="secret") as to_one,
            client(two) as to_two,
        ):
            to_one.connection.send_buffers([made(1, 101).data])
            to_two.connection.send_buffers([made(50, 101).data])
            await until(lambda: _count(one) == 100 and _count(two) == 51)
            aligner, refused = make_aligner(two, one.urls[0]), make_aligner(stranger, one.urls[0])
            assert await aligner.align() == 49
            with pytest.raises(Refused, match="may not"):
                await refused.align()
            relay = make_relay(two, one.urls[0])
            await relay.start()
            to_one.connection.send_buffers([made(101, 111).data])
            async with to_two.subscribe(TOPIC, history=True) as events:
                assert await take(events, 61) == list(range(50, 111))
            for part in (aligner, refused, relay):
                await part.stop()

    run(test)


def test_a_node_shows_its_token_to_the_caches_it_asks(tmp_path: Path) -> None:
    async def test() -> None:
        there, here = secured(tmp_path)
        async with fabric(there) as [far], connect(far.urls[0], config=CLIENT, token="secret") as to_far:
            to_far.connection.send_buffers([made(1, 31).data])
            await until(lambda: _count(far) == 30)
            asking = dataclasses.replace(here, recovery=RecoverySettings(caches=(far.urls[0],)))
            async with fabric(asking) as [near], client(near) as session, session.subscribe(TOPIC) as events:
                for seq in (10, 31):
                    events.receive(subscribing.Delivered([made(seq, seq + 1)], 0, 1, False))
                assert await take(events, 22) == list(range(10, 32))

    run(test)

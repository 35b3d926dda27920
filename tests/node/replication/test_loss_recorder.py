"""Ranges that nobody has any more: a node that relays goes on behind them, and every durable subscriber is told once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from reknit.config import Config, NodeSettings
from reknit.ledger import Ledger
from reknit.outcome import FinalOutcome
from reknit.processes.process import tied
from reknit.protocol.recovery.cache import MemoryCache
from reknit.records import Skipped, apply, decode, encode
from reknit.server import build_node, make_relay
from reknit.topic import Pattern
from reknit.wire.recovery import Offer
from tests.node.fabric import (
    QUICK,
    SOURCE,
    TOPIC,
    Told,
    client,
    fabric,
    fed,
    made,
    run,
    settled_rows,
    take,
    until,
)

pytestmark = pytest.mark.real


def on_disk(folder: Path) -> Config:
    node = NodeSettings(name="test", data_dir=folder, listen=("tcp://127.0.0.1:0",))
    return Config(node=node, transport=QUICK)


def test_a_record_of_a_skipped_range_survives_and_is_booked_once() -> None:
    ledger = Ledger()
    ledger.open("audit", Pattern("plant/**"), {}, 0)
    ledger.publish(TOPIC, SOURCE, 1, 3)
    record = decode(encode(Skipped(TOPIC, SOURCE, 2, 6, "gone", 7)))
    apply(ledger, record)
    apply(ledger, record)
    assert ledger.skipped[TOPIC, SOURCE].ranges() == [(3, 6)], "what was kept is not lost"
    assert ledger.untold("audit") == [((TOPIC, SOURCE), 3, 6)]
    ledger.settle("audit", TOPIC, SOURCE, 3, 6, FinalOutcome.LOST)
    assert ledger.untold("audit") == []
    [row] = ledger.rows()
    assert (row.published, row.lost, row.in_flight, row.balanced) == (5, 3, 2, True)


def test_what_came_before_a_subscriber_began_is_not_told_to_it() -> None:
    ledger = Ledger()
    ledger.open("late", Pattern("plant/**"), {(TOPIC, SOURCE): 9}, 0)
    ledger.open("office", Pattern("office/**"), {}, 0)
    ledger.skip(TOPIC, SOURCE, 3, 6)
    assert ledger.untold("late") == ledger.untold("office") == ledger.untold("nobody") == []


def test_durable_subscribers_are_told_once_and_the_ledger_balances() -> None:
    async def test() -> None:
        one, two, told = Told(), Told(), Told()
        async with fabric() as [node], client(node) as session:
            async with (
                session.subscribe("plant/**", name="one", on_lost=one) as first,
                session.subscribe("plant/*", name="two", on_lost=two) as second,
                session.subscribe("office/**", name="three", on_lost=told),
            ):
                await fed(node, made(1, 3), made(6, 8))
                assert await take(first, 4) == await take(second, 4) == [1, 2, 6, 7]
                await until(lambda: one.ranges and two.ranges)
            assert one.ranges == two.ranges == [(3, 6)]
            assert told.ranges == []
            for row in await settled_rows(node):
                ends = (row["published"], row["accepted"], row["lost"], row["balanced"])
                assert ends == (7, 4, 3, True)

    run(test)


def test_a_subscriber_that_was_away_is_told_when_it_is_back_and_never_again() -> None:
    async def test() -> None:
        told = Told()
        async with fabric() as [node], client(node) as session:
            async with session.subscribe(TOPIC, name="away") as events:
                await fed(node, made(1, 3))
                assert await take(events, 2) == [1, 2]
            await fed(node, made(6, 8))
            [row] = await node.figures.ledger()
            assert (row["lost"], row["in_flight"], row["balanced"]) == (0, 5, True), "it is owed to it"
            async with session.subscribe(TOPIC, name="away", on_lost=told) as events:
                assert await take(events, 2) == [6, 7]
                await until(lambda: told.ranges)
            assert [row["lost"] for row in await settled_rows(node)] == [3]
            async with session.subscribe(TOPIC, name="away", on_lost=told) as events:
                await fed(node, made(8, 9))
                assert await take(events, 1) == [8]
            assert told.ranges == [(3, 6)]

    run(test)


def test_a_new_durable_subscriber_that_wants_history_is_told_of_the_hole_in_it() -> None:
    async def test() -> None:
        told = Told()
        async with fabric() as [node], client(node) as session:
            await fed(node, made(1, 3), made(6, 8))
            async with session.subscribe(TOPIC, name="new", history=True, on_lost=told) as events:
                assert await take(events, 4) == [1, 2, 6, 7]
                await until(lambda: told.ranges)
            assert told.ranges == [(3, 6)]
            assert [(row["lost"], row["balanced"]) for row in await settled_rows(node)] == [(3, True)]

    run(test)


def test_what_was_skipped_is_known_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        told = Told()
        async with build_node(on_disk(tmp_path)) as node, client(node) as session:
            async with session.subscribe(TOPIC, name="away", history=True):
                pass
            await fed(node, made(1, 3), made(6, 8))
        async with build_node(on_disk(tmp_path)) as node:
            await asyncio.to_thread(node.journal.checkpoint)
        async with build_node(on_disk(tmp_path)) as node, client(node) as session:
            assert node.journal.ledger.skipped[TOPIC, SOURCE].ranges() == [(3, 6)]
            async with session.subscribe(TOPIC, name="away", on_lost=told) as events:
                assert await take(events, 4) == [1, 2, 6, 7]
                await until(lambda: told.ranges)
            assert told.ranges == [(3, 6)]
            assert [(row["lost"], row["balanced"]) for row in await settled_rows(node)] == [(3, True)]

    run(test)


def test_a_relay_tells_its_own_nodes_subscribers_what_its_origin_lost() -> None:
    async def test() -> None:
        told = Told()
        async with fabric() as [origin], client(origin) as session, fabric() as [near]:
            await fed(origin, made(5, 9))
            async with session.subscribe("**", name="relay/test/**", history=True) as before:
                await take(before, 4)  # an earlier relay of that name took these, and its journal is gone
            await fed(near, made(1, 3))
            async with (
                client(near) as reader,
                reader.subscribe(TOPIC, name="reader", history=True, on_lost=told) as events,
            ):
                relay = make_relay(near, origin.urls[0])
                await relay.start()
                await fed(origin, made(9, 10))
                assert await take(events, 7) == [1, 2, 5, 6, 7, 8, 9]
                await until(lambda: told.ranges)
                await relay.stop()
            assert told.ranges == [(3, 5)]
            assert [(row["lost"], row["balanced"]) for row in await settled_rows(near)] == [(2, True)]

    run(test)


def test_a_relay_gets_what_its_origin_lacks_from_the_publishers_own_cache() -> None:
    async def test() -> None:
        told = Told()
        async with fabric() as [origin], client(origin) as session, fabric() as [near]:
            held = MemoryCache(Pattern(TOPIC))
            held.put(made(1, 9), 0)
            session.router.offer_cache(held, Offer(TOPIC, SOURCE))
            await fed(near, made(1, 3))
            async with (
                client(near) as reader,
                reader.subscribe(TOPIC, name="reader", history=True, on_lost=told) as events,
            ):
                relay = make_relay(near, origin.urls[0])
                await relay.start()
                await fed(origin, made(9, 10))
                assert await take(events, 9) == list(range(1, 10))
                await relay.stop()
            assert told.ranges == []

    run(test)


async def reknit(*args: str) -> tuple[int | None, str, str]:
    """The command's exit code and what it said."""
    pipe = asyncio.subprocess.PIPE
    command = await asyncio.create_subprocess_exec(
        *tied([sys.executable, "-m", "reknit", *args]), stdout=pipe, stderr=pipe
    )
    out, err = await command.communicate()
    return command.returncode, out.decode(), err.decode()


def test_the_commands_tell_of_the_loss_once_and_find_the_ledger_balanced() -> None:
    async def test() -> None:
        async with fabric() as [node]:
            await fed(node, made(1, 3), made(6, 8))
            where = ("--node", node.urls[0])
            told: list[str] = []
            for first in (1, 6):
                if first == 6:
                    await fed(node, made(8, 12))
                options = ("--raw", "--name", "cli", "--history", "--count", "4")
                code, _, said = await reknit("sub", TOPIC, *options, *where)
                assert code == 0, said
                told += [line for line in said.splitlines() if "lost [" in line]
            assert len(told) == 1
            assert "[3, 6)" in told[0]
            code, said, _ = await reknit("ledger", *where)
            assert code == 0
            assert "balanced" in said

    run(test)

"""The figures of a node are read while it works: no request stops it, however many sources it knows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from reknit.config import SecuritySettings
from reknit.ledger import Ledger
from reknit.ledger import ledger as ledgers
from reknit.node.admin.metrics import NodeCollector
from reknit.outcome import FinalOutcome
from reknit.topic import Pattern
from tests.node.fabric import client, config, fabric, run

SOURCES = 20_000


def fill(ledger: Ledger) -> None:
    """Many sources, as after a long life, and two durable subscribers that are away."""
    for name in ("audit", "late"):
        ledger.open(name, Pattern("plant/**"), {}, 0)
    for number in range(SOURCES):
        topic, source = f"plant/{number % 20}", number.to_bytes(16, "big")
        ledger.publish(topic, source, 1, 4)
        ledger.settle("audit", topic, source, 1, 4, FinalOutcome.ACCEPTED)


async def turns_during(work: asyncio.Task[object]) -> int:
    """How often the event loop gets around while something is done."""
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_a_node_goes_on_while_its_ledger_is_read() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            fill(node.journal.ledger)
            turns = await turns_during(asyncio.create_task(node.figures.ledger()))
            assert turns >= 2 * SOURCES // ledgers.STEP_SERIES, "a turn for every step of each subscriber"
            rows = await session.ledger()
            assert len(rows) == 40
            assert sum(row["in_flight"] for row in rows) == 3 * SOURCES
            assert await session.ledger(topic="plant/7", unbalanced=True) == []
            [one, other] = await session.ledger(topic="plant/7")
            assert (one["subscriber"], other["subscriber"]) == ("audit", "late")

    run(test)


def test_a_node_goes_on_while_it_is_scraped() -> None:
    async def test() -> None:
        async with fabric() as [node]:
            fill(node.journal.ledger)
            collector = NodeCollector(node.figures, asyncio.get_running_loop())
            scrape = asyncio.create_task(asyncio.to_thread(lambda: list(collector.collect())))
            assert await turns_during(scrape) >= 2 * SOURCES // ledgers.STEP_SERIES
            names = {metric.name for metric in await scrape}
            assert {"reknit_ledger_events", "reknit_published"} <= names

    run(test)


def test_walks_through_the_ledger_take_turns() -> None:
    async def test() -> None:
        async with fabric() as [node]:
            fill(node.journal.ledger)
            walks = [asyncio.create_task(node.figures.ledger()) for _ in range(3)]
            done = []
            for walk in walks:
                walk.add_done_callback(lambda walk: done.append(sum(one.done() for one in walks)))
            await asyncio.gather(*walks)
            assert done == [1, 2, 3], "one after the other"

    run(test)


def test_a_long_ledger_comes_in_pages() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            fill(node.journal.ledger)
            every = await session.ledger()
            first = await session.ask("ledger", rows_max=7)
            after = [first[-1]["subscriber"], first[-1]["topic"]]
            rest = await session.ask("ledger", after=after)
            assert first + rest == every

    run(test)


def test_waits_for_quotas_and_connections_are_metrics() -> None:
    security = SecuritySettings(quotas=("anonymous events_per_s=10 connections=5",))

    async def test() -> None:
        async with fabric(replace(config(), security=security)) as [node], client(node) as session:
            await session.publish_many("plant/a", [b"x"] * 30)
            collector = NodeCollector(node.figures, asyncio.get_running_loop())
            found = await asyncio.to_thread(lambda: list(collector.collect()))
            values = {
                (one.name, *one.labels.values()): one.value for family in found for one in family.samples
            }
            assert values["reknit_quota_waits_total", "anonymous"] == 1
            assert values["reknit_quota_connections", "anonymous"] == 1
            assert values[("reknit_dead_letters_stopped",)] == 0

    run(test)

"""The figures of a node are read while it works: no request stops it, however many sources it knows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.core import Metric

from reknit.client.subscribe.subscription import Subscription
from reknit.config import LimitSettings, SecuritySettings, TopicSettings
from reknit.event import Event
from reknit.ledger import Ledger
from reknit.ledger import walk as walks
from reknit.node.admin import ledger_reader
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
            assert turns >= 2 * SOURCES // walks.STEP_SERIES, "a turn for every step of each subscriber"
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
            assert await turns_during(scrape) >= 2 * SOURCES // walks.STEP_SERIES
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


def values_of(metrics: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    """The samples with a name, by their labels."""
    samples = [sample for metric in metrics for sample in metric.samples]
    return {tuple(one.labels.values()): one.value for one in samples if one.name == name}


def test_a_node_with_many_topics_has_a_bounded_number_of_metrics() -> None:
    """The sums are exact: every event is in one of them."""
    limited = replace(config(), limits=LimitSettings(metric_rows_max=6))

    async def test() -> None:
        async with fabric(limited) as [node]:
            fill(node.journal.ledger)
            collector = NodeCollector(node.figures, asyncio.get_running_loop())
            found = await asyncio.to_thread(lambda: list(collector.collect()))
            own = [f"plant/{number}" for number in range(6)]
            assert values_of(found, "reknit_published_total") == {
                **{(topic,): 3_000 for topic in own},
                ("*",): 3 * SOURCES - 18_000,
            }
            events = values_of(found, "reknit_ledger_events")
            assert {labels[:2] for labels in events} == {
                (name, topic) for name in ("audit", "late") for topic in (*own[:3], "*")
            }
            assert events["audit", "*", "accepted"] == events["late", "*", "in_flight"] == 51_000
            assert sum(value for labels, value in events.items() if labels[2] == "published") == 6 * SOURCES
            assert set(values_of(found, "reknit_ledger_balanced").values()) == {1.0}

    run(test)


def test_one_topic_that_does_not_balance_shows_in_the_sum_of_many() -> None:
    limited = replace(config(), limits=LimitSettings(metric_rows_max=2))

    async def test() -> None:
        async with fabric(limited) as [node]:
            fill(node.journal.ledger)
            node.journal.ledger.settle("late", "plant/9", b"n" * 16, 1, 2, FinalOutcome.ACCEPTED)
            _, sums = await node.figures.for_metrics()
            assert [(row["subscriber"], row["topic"]) for row in sums.rows if not row["balanced"]] == [
                ("late", "*")
            ]

    run(test)


def test_a_ledger_that_takes_long_is_not_added_up_for_every_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_reader, "QUICK_S", 0.0)
    monkeypatch.setattr(ledger_reader, "REST", float("inf"))

    async def test() -> None:
        async with fabric() as [node]:
            fill(node.journal.ledger)
            _, first = await node.figures.for_metrics()
            node.journal.ledger.publish("plant/new", b"n" * 16, 1, 4)
            _, second = await node.figures.for_metrics()
            assert second.rows == first.rows
            assert second.age_s > first.age_s >= 0.0

    run(test)


def test_a_scrape_does_not_wait_for_a_ledger_that_takes_very_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_reader, "WAIT_S", 0.0)

    async def test() -> None:
        async with fabric() as [node]:
            fill(node.journal.ledger)
            _, nothing = await node.figures.for_metrics()
            assert nothing == ([], -1.0)
            monkeypatch.setattr(ledger_reader, "WAIT_S", 60.0)
            _, sums = await node.figures.for_metrics()
            assert len(sums.rows) == 40, "the walk that was begun"

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


async def take_one(events: Subscription) -> Event:
    return await anext(events)


def test_releases_and_further_attempts_are_metrics() -> None:
    rule = TopicSettings(pattern=Pattern("orders/**"), distribution="balanced")

    async def test() -> None:
        async with fabric(replace(config(), topics=(rule,))) as [node], client(node) as session:
            async with session.subscribe("plant/a", name="audit", auto_accept=False) as events:
                await session.publish_many("plant/a", [b"1", b"2"])
                for seq in (1, 2):
                    event = await anext(events)
                    await (event.release() if seq == 1 else event.accept())
                await (await anext(events)).accept()
            publisher = session.publisher("orders/new", resend_released=True)
            async with (
                session.subscribe("orders/new", auto_accept=False) as one,
                session.subscribe("orders/new", auto_accept=False) as other,
            ):
                sent = asyncio.ensure_future(publisher.publish(b"x"))
                mine = [asyncio.create_task(take_one(events)) for events in (one, other)]
                done, _ = await asyncio.wait(mine, return_when=asyncio.FIRST_COMPLETED)
                await done.pop().result().release()
                await asyncio.wait(mine)
                event = next(task.result() for task in mine if task.result().attempt == 2)
                await event.accept()
                await sent
            collector = NodeCollector(node.figures, asyncio.get_running_loop())
            found = await asyncio.to_thread(lambda: list(collector.collect()))
            for name, count in (("released", 2), ("redelivered", 1), ("forwarded_again", 1)):
                assert values_of(found, f"reknit_{name}_total") == {(): count}, name

    run(test)

"""A dead letter goes back to the one subscriber that it failed at; the others never learn of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reknit.client import dead_letters
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.config import JournalSettings, NodeSettings, TopicSettings
from reknit.dead_letter import DeadLetterFilter
from reknit.errors import Refused
from reknit.outcome import Code
from reknit.topic import Pattern
from tests.node.fabric import client, config, fabric, run, settled_rows

TOPIC = "orders/new"
ONCE = TopicSettings(pattern=Pattern("orders/**"), attempts_max=1, order="source")


def on_disk(folder: Path) -> Any:
    node = NodeSettings(name="test", listen=("tcp://127.0.0.1:0",), data_dir=folder)
    return replace(config(), node=node, journal=JournalSettings(kind="disk", sync=False), topics=(ONCE,))


async def take(events: Subscription, count: int) -> list[Any]:
    return [await anext(events) for _ in range(count)]


async def redrive(session: Session, waiting: int = 1, **options: Any) -> dict[str, int]:
    while await dead_letters.waiting(session) < waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    total = {"count": 0, "without_subscriber": 0}
    async for page in dead_letters.redrive(session, to_subscriber=True, **options):
        for name in total:
            total[name] += page[name]
    return total


async def refuse_second(events: Subscription) -> None:
    for seq in (1, 2, 3):
        event = await anext(events)
        await (event.reject(Code.DATA_LOSS, "torn") if seq == 2 else event.accept())


def rows_of(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int, int, bool]]:
    return {
        (row["subscriber"], row["topic"]): (
            row["published"],
            row["accepted"],
            row["dead_lettered"],
            row["balanced"],
        )
        for row in rows
    }


def test_an_event_goes_back_to_the_subscriber_that_it_failed_at_alone(tmp_path: Path) -> None:
    """The account of one subscriber owes it, over a restart of the node, and the ledger balances."""

    async def test() -> None:
        async with fabric(on_disk(tmp_path)) as [node], client(node) as session:
            async with (
                session.subscribe("orders/**", name="audit", auto_accept=False) as audit,
                session.subscribe(TOPIC, name="billing", auto_accept=False) as billing,
                session.subscribe("**") as everything,
            ):
                await session.publish_many(TOPIC, [b"1", b"2", b"3"], headers={"a": "b"})
                for event in await take(audit, 3):
                    await event.accept()
                await refuse_second(billing)
                assert await redrive(session) == {"count": 1, "without_subscriber": 0}
                assert await redrive(session, 0) == {"count": 0, "without_subscriber": 0}
                [event] = await take(billing, 1)
                assert (event.topic, event.payload, event.headers["a"]) == (TOPIC, b"2", "b")
                assert event.headers["redriven-for"] == "billing"
                await event.reject(Code.DATA_LOSS, "still torn")
                await session.publish(TOPIC, b"4")
                for events in (audit, billing):
                    [event] = await take(events, 1)
                    assert event.payload == b"4"
                    await event.accept()
                assert [event.payload for event in await take(everything, 4)] == [b"1", b"2", b"3", b"4"]
            assert await redrive(session, wanted=DeadLetterFilter(topic="orders/*")) == {
                "count": 1,
                "without_subscriber": 0,
            }
        async with fabric(on_disk(tmp_path)) as [node], client(node) as session:
            async with session.subscribe(TOPIC, name="billing", auto_accept=False) as billing:
                [event] = await take(billing, 1)
                assert (event.topic, event.payload) == (TOPIC, b"2")
                await event.accept()
            private = f"reknit/redriven/billing/{TOPIC}"
            assert rows_of(await settled_rows(node)) == {
                ("audit", TOPIC): (4, 4, 0, True),
                ("billing", TOPIC): (4, 3, 1, True),
                ("billing", private): (2, 1, 1, True),
            }

    run(test)


def test_events_of_a_queue_go_back_to_the_queue(tmp_path: Path) -> None:
    async def test() -> None:
        async with fabric(on_disk(tmp_path)) as [node], client(node) as session:
            async with (
                session.subscribe(TOPIC, queue="workers", auto_accept=False) as work,
                session.subscribe(TOPIC, queue="others", auto_accept=False) as others,
            ):
                await session.publish_many(TOPIC, [b"1", b"2", b"3"])
                await refuse_second(work)
                for event in await take(others, 3):
                    await event.accept()
                assert (await redrive(session))["count"] == 1
                [event] = await take(work, 1)
                assert (event.topic, event.payload) == (TOPIC, b"2")
                await event.accept()
            assert {row["balanced"] for row in await settled_rows(node)} == {True}
            rows = rows_of(await settled_rows(node))
            assert [key for key in rows if key[1] != TOPIC] == [
                ("queue/workers", f"reknit/redriven/queue%2Fworkers/{TOPIC}")
            ]

    run(test)


def test_a_subscriber_that_is_gone_gets_nothing_and_a_new_one_of_its_name_owes_nothing(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with fabric(on_disk(tmp_path)) as [node], client(node) as session:
            async with session.subscribe(TOPIC, name="billing", auto_accept=False) as billing:
                await session.publish_many(TOPIC, [b"1", b"2", b"3"])
                await refuse_second(billing)
                assert (await redrive(session))["count"] == 1
                await (await anext(billing)).reject(Code.DATA_LOSS, "torn")
                await billing.forget()
            assert await redrive(session) == {"count": 0, "without_subscriber": 1}
            async with session.subscribe(TOPIC, name="billing", history=True) as billing:
                assert [event.payload for event in await take(billing, 3)] == [b"1", b"2", b"3"]
                assert (await redrive(session))["count"] == 1
                assert [event.payload for event in await take(billing, 1)] == [b"2"]
            assert {row["balanced"] for row in await settled_rows(node)} == {True}

    run(test)


def test_nobody_publishes_there_and_another_place_is_refused() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            with pytest.raises(Refused):
                async with asyncio.timeout(60):
                    await session.publish(f"reknit/redriven/billing/{TOPIC}", b"forged")
            with pytest.raises(Refused, match="choose all or subscriber"):
                await session.ask("redrive", to="everybody")

    run(test)

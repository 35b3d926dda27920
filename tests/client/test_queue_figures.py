"""The figures of work queues, as `reknit queues` shows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reknit import connect
from reknit.cli.queues import print_queues, with_rates
from reknit.client.session import Session
from reknit.config import DispatchSettings, TopicSettings
from reknit.outcome import Outcome
from reknit.topic import Pattern
from tests.client.test_dispatch import node, run

BALANCED = (TopicSettings(pattern=Pattern("orders/**"), distribution="balanced"),)


async def row(session: Session, queue: str, **wanted: Any) -> dict[str, Any]:
    """The queue's row, once it has these figures."""
    while True:
        [found] = [one for one in await session.ask("queues") if one["queue"] == queue]
        if all(found[name] == value for name, value in wanted.items()):
            return dict(found)
        await asyncio.sleep(0.01)


def test_queue_has_depth_members_attempts_and_the_age_of_its_oldest_event() -> None:
    async def program(url: str) -> None:
        async with connect(url, name="desk") as session:
            async with session.subscribe("jobs/**", queue="work", auto_accept=False) as events:
                empty = await row(session, "work", depth=0)
                assert (empty["oldest_s"], empty["order"], empty["pattern"]) == (None, "", "jobs/**")
                await session.publish_many("jobs/a", [b"1", b"2", b"3"])
                first = await anext(aiter(events))
                full = await row(session, "work", depth=3)
                assert full["oldest_s"] >= 0.0
                [member] = full["members"]
                assert member["name"].startswith("desk (")
                assert member["events"] >= 1
                await first.fail()
                assert (await row(session, "work", tried=1))["attempts"] == 1
                again = await anext(aiter(events))
                while again.attempt == 1:
                    await again.accept()
                    again = await anext(aiter(events))
                await again.accept()
                await row(session, "work", tried=0)
            assert (await row(session, "work"))["members"] == []

    with node(dispatch=DispatchSettings(retry_backoff_s_min=0.001, retry_backoff_s_max=0.01)) as url:
        run(program(url))


def test_rule_with_a_distribution_is_a_queue_and_its_publisher_hears_a_typed_outcome() -> None:
    async def program(url: str) -> None:
        async with connect(url, name="desk") as session, session.subscribe("orders/**") as events:
            publisher = session.publisher("orders/new", outcome=True)
            told = publisher.publish(b"tea")
            await anext(aiter(events))
            full = await row(session, "anycast/orders/**", depth=1)
            assert [(one["events"], one["is_node"]) for one in full["members"]] == [(1, False)]
            assert full["members"][0]["name"].startswith("desk (")
            waiting = asyncio.ensure_future(anext(aiter(events)))  # accepts the one before it
            outcome: Outcome = await told
            assert str(outcome) == f"{outcome}" == "ACCEPTED"
            await row(session, "anycast/orders/**", depth=0, accepted=1)
            waiting.cancel()

    with node(topics=BALANCED) as url:
        run(program(url))


def test_table_shows_rate_and_workers(capsys: pytest.CaptureFixture[str]) -> None:
    member = {"name": "desk", "events": 2, "is_node": False}
    before = {
        "queue": "work", "pattern": "jobs/**", "members": [member, member | {"is_node": True}], "depth": 1200,
        "accepted": 100, "dead_lettered": 0, "lost": 0, "oldest_s": 61.25, "tried": 3, "attempts": 4,
    }  # fmt: skip
    new = before | {"queue": "new", "oldest_s": None, "members": []}
    print_queues(with_rates([before], [before | {"accepted": 150}, new], 2.0))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["work", "jobs/**", "1,200", "25.0", "1", "61.2", "s", "3", "4"] in lines
    assert ["new", "jobs/**", "1,200", "0.0", "0", "3", "4"] in lines

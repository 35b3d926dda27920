"""Publishing later: with a time or a delay, listed, cancelled; by async, blocking and typed sessions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import reknit
from reknit.cli.main import app
from reknit.config import Config, JournalSettings, SecuritySettings
from tests.client.node_thread import ANY_PORT, run, serving

pytestmark = pytest.mark.real


class Order(msgspec.Struct):
    id: int


def test_an_event_is_published_later(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("orders/**") as events:
            later = await session.publish(
                "orders/new", b"later", delay_s=0.2, key="k", headers={"trace": "7"}
            )
            await session.publish("orders/new", b"now")
            got = [await anext(events) for _ in range(2)]
        assert [event.payload for event in got] == [b"now", b"later"]
        assert got[1].headers == {"trace": "7", "scheduled": later.id}
        assert got[1].time_us >= round(later.at.timestamp() * 1e6)

    run(program())


def test_events_are_listed_and_cancelled(url: str) -> None:
    async def program() -> None:
        at = datetime.now(UTC) + timedelta(days=3)
        async with reknit.connect(url) as session:
            one = await session.publish("orders/a", b"1", at=at)
            two = await session.publish("orders/b", Order(2), at=at.timestamp() - 60, codec=Order)
            assert await session.scheduled() == [two, one]
            assert (one.topic, abs(one.at - at) < timedelta(milliseconds=1)) == ("orders/a", True)
            assert await session.scheduled("orders/b") == [two]
            assert await session.cancel(one)
            assert not await session.cancel(one), "it was cancelled before"
            assert await session.cancel_scheduled("orders/**") == [two.id]
            assert await session.scheduled() == []

    run(program())


def test_calls_that_nobody_awaits_are_stored_when_the_session_ends(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url, name="boiler") as session:
            for number in range(3):
                session.publish("orders/a", b"%d" % number, delay_s=3600)
        async with reknit.connect(url, name="boiler") as session:
            again = await session.publish("orders/a", b"3", delay_s=3600)
            assert len(await session.scheduled()) == 4
            assert await session.cancel(again), "its id is right, though its source has published before"

    run(program())


def test_blocking_sessions_schedule_too(url: str) -> None:
    with reknit.connect_sync(url) as session:
        later = session.publish("orders/a", b"1", delay_s=3600)
        assert session.scheduled() == [later]
        assert session.cancel(later)
        session.publish("orders/a", b"1", delay_s=3600)
        assert len(session.cancel_scheduled("**")) == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"at": datetime(2030, 1, 1)}, "it has no time zone"),
        ({"at": "tomorrow"}, "a datetime, or seconds since 1970"),
        ({"delay_s": -1}, "seconds from now"),
        ({"delay_s": True}, "seconds from now"),
        ({"delay_s": 1, "at": 5}, "either at or delay_s"),
    ],
)
def test_odd_times_are_refused_at_once(url: str, fields: dict[str, Any], text: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            with pytest.raises(reknit.LocalError, match=text):
                session.publish("orders/a", b"1", **fields)

    run(program())


def test_rules_hold_for_the_topic_that_an_event_is_for() -> None:
    allow = ("* publish orders/**", "* subscribe orders/**")
    config = Config(
        node=ANY_PORT, journal=JournalSettings(kind="memory"), security=SecuritySettings(allow=allow)
    )

    async def program(url: str) -> None:
        async with reknit.connect(url) as session:
            later = await session.publish("orders/a", b"1", delay_s=3600)
            assert await session.scheduled("orders/**") == [later]
            with pytest.raises(reknit.Refused, match="may not publish on 'plant/a'"):
                await session.publish("plant/a", b"1", delay_s=1)
            with pytest.raises(reknit.Refused, match="may not"):
                await session.cancel_scheduled("**")
            assert await session.cancel(later)

    with serving(config) as node:
        run(program(node.urls[0]))


def test_the_command_line_schedules_lists_and_cancels(url: str) -> None:
    shell = CliRunner(env={"REKNIT_NODE": url})

    def printed(*args: str, exit_code: int = 0) -> str:
        result = shell.invoke(app, args)
        assert result.exit_code == exit_code, result.output
        return result.output

    assert "nothing is scheduled" in printed("scheduled", "list")
    assert "1 event stored" in printed("pub", "orders/a", "1", "--delay", "3600")
    assert "2 events stored" in printed(
        "pub", "orders/b", "x", "--count", "2", "--at", "2100-01-31T08:00+01:00"
    )
    rows = json.loads(printed("scheduled", "list", "--json"))
    assert [row["topic"] for row in rows] == ["orders/a", "orders/b", "orders/b"]
    assert rows[1]["at"] == "2100-01-31T07:00:00+00:00"
    assert rows[1]["id"] in printed("scheduled", "list", "orders/b")
    assert "1 event cancelled" in printed("scheduled", "cancel", rows[1]["id"])
    assert "published or cancelled before" in printed("scheduled", "cancel", rows[1]["id"], exit_code=1)
    assert json.loads(printed("scheduled", "cancel", "--topics", "orders/*", "--json")) == {
        "cancelled": [rows[0]["id"], rows[2]["id"]]
    }
    assert "name what to cancel" in printed("scheduled", "cancel", exit_code=1)
    assert "is no time" in printed("pub", "a", "1", "--at", "tomorrow", exit_code=2)

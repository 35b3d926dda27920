"""Mistakes that are told at once: what would wait for ever, and arguments that a node would refuse."""

from __future__ import annotations

from typing import Any

import pytest

import reknit
from reknit.client.dead_letters import letters
from reknit.config import Config, JournalSettings, SecuritySettings
from tests.client.node_thread import ANY_PORT, run, serving

DENIED = Config(
    node=ANY_PORT,
    journal=JournalSettings(kind="memory"),
    security=SecuritySettings(allow=("* subscribe **", "* publish good/**")),
)


def test_a_session_that_was_not_opened_refuses_every_call() -> None:
    async def program() -> None:
        session = reknit.connect("tcp://127.0.0.1:1")
        for call in (
            lambda: session.publish("a", b""),
            lambda: session.publish_many("a", [b""]),
            lambda: session.publisher("a"),
            lambda: session.subscribe("a"),
            lambda: session.group("a"),
            lambda: session.serve("/1/1/1", print),  # type: ignore[arg-type]
        ):
            with pytest.raises(reknit.NotOpen, match="the session is not open; use it in an `async with`"):
                call()
        for waits in (session.status(), session.request("/1/1/1", b"")):
            with pytest.raises(reknit.NotOpen):
                await waits

    run(program())
    with pytest.raises(reknit.NotOpen):
        reknit.connect_sync("tcp://127.0.0.1:1").publish("a", b"")


@pytest.mark.real
def test_a_closed_session_says_so(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            await session.publish("a", b"")
        for topic in ("a", "b"):
            with pytest.raises(reknit.Closed, match="the session is closed; connect again"):
                await session.publish(topic, b"")
        with pytest.raises(reknit.Closed):
            await session.open()

    run(program())


@pytest.mark.real
def test_a_subscription_without_async_with_says_so(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            with pytest.raises(reknit.NotOpen, match="the subscription to 'a' is not open"):
                async for _ in session.subscribe("a", history=True):
                    pass
            with pytest.raises(reknit.NotOpen):
                await anext(session.subscribe("a", codec=reknit.JSON))
            with pytest.raises(reknit.NotOpen):
                async for _ in session.subscribe("a").batches():
                    pass

    run(program())
    with reknit.connect_sync(url) as session, pytest.raises(reknit.NotOpen):
        next(session.subscribe("a"))


ODD: list[tuple[str, Any]] = [
    ("history", "all"),
    ("history", None),
    ("history", [1]),
    ("start", "c1.abc"),
    ("on_lost", "print"),
    ("caches", "tcp://127.0.0.1:1"),
    ("query_s", -1.0),
    ("query_s", float("nan")),
    ("name", 7),
    ("name", None),
    ("queue", 7),
]
ODD_PUBLISHERS: list[tuple[str, Any]] = [
    ("stored_by", 0),
    ("history", -1),
    ("history", True),
    ("heartbeat_s", -1),
    ("source", b"short"),
    ("source", "x" * 16),
]


@pytest.mark.real
def test_odd_arguments_are_refused_in_the_call(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            for name, value in ODD:
                with pytest.raises(reknit.LocalError, match=f"Invalid {name} "):
                    session.subscribe("a", **{name: value})
            for name, value in ODD_PUBLISHERS:
                with pytest.raises(reknit.LocalError, match=f"Invalid {name} "):
                    session.publisher("a", **{name: value})

    run(program())


@pytest.mark.real
def test_an_error_that_a_call_raised_is_not_raised_again_by_leaving() -> None:
    async def program(url: str) -> None:
        async with reknit.connect(url) as session:
            with pytest.raises(reknit.Refused, match="PERMISSION_DENIED"):
                await session.publish("bad/a", b"")
            with pytest.raises(reknit.Refused):
                await session.publish("bad/a", b"")
            publisher = session.publisher("bad/b")
            await publisher.send(b"")
            with pytest.raises(reknit.Refused):
                await publisher.flush()

    with serving(config=DENIED) as node:
        run(program(node.urls[0]))
        with reknit.connect_sync(node.urls[0]) as session, pytest.raises(reknit.Refused):
            session.publish("bad/a", b"")


@pytest.mark.real
def test_an_error_that_nobody_heard_of_is_raised_by_leaving() -> None:
    async def unheard(url: str) -> None:
        async with reknit.connect(url) as session:
            session.publish("bad/a", b"")
            await session.publish("good/a", b"")

    async def sent(url: str) -> None:
        async with reknit.connect(url) as session:
            await session.publisher("bad/a").send(b"")

    async def failed(url: str) -> None:
        async with reknit.connect(url) as session:
            session.publish("bad/a", b"")
            await session.publish("good/a", b"")
            raise KeyError("the program's own")

    def blocking(url: str) -> None:
        with reknit.connect_sync(url) as session:
            session.publisher("bad/a").send(b"")

    with serving(config=DENIED) as node:
        for program in (unheard, sent):
            with pytest.raises(reknit.Refused, match="PERMISSION_DENIED"):
                run(program(node.urls[0]))
        with pytest.raises(KeyError):
            run(failed(node.urls[0]))
        with pytest.raises(reknit.Refused, match="PERMISSION_DENIED"):
            blocking(node.urls[0])


@pytest.mark.real
def test_a_request_whose_answer_may_not_come_fails_with_the_rule_that_is_missing() -> None:
    async def program(url: str) -> None:
        async with reknit.connect(url, name="asker") as session:
            with pytest.raises(reknit.RequestFailed, match="PERMISSION_DENIED: responses can't come to up/"):
                await session.request("up://vcu/10/1/2", b"")

    config = Config(
        node=ANY_PORT,
        journal=JournalSettings(kind="memory"),
        security=SecuritySettings(allow=("* publish **",)),
    )
    with serving(config=config) as node:
        run(program(node.urls[0]))


@pytest.mark.real
def test_an_event_is_rejected_by_the_name_of_a_code(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            async with session.subscribe("a", name="shop") as events:
                await session.publish("a", b"1")
                event = await anext(events)
                with pytest.raises(reknit.LocalError, match="Invalid code 'BAD'"):
                    event.reject("BAD")
                await event.reject("NOT_FOUND", "no such thing")
            found = [(letter.code, letter.text) async for _, letter in letters(session)]
            assert found == [(reknit.Code.NOT_FOUND, "no such thing")]

    run(program())

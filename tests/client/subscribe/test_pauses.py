"""A subscriber pauses its own delivery: nobody else notices, and no event is lost, failed or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from reknit import connect, connect_sync
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, DispatchSettings, JournalSettings, TopicSettings
from reknit.event import Event
from reknit.topic import Pattern
from tests.client.node_thread import ANY_PORT, serving

PATIENCE_S = 30.0
Program = Callable[[str], Coroutine[Any, Any, None]]


def run(program: Program, **dispatch: Any) -> None:
    """Run a program with a node."""

    async def within(url: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await program(url)

    rules = (
        TopicSettings(pattern=Pattern("ordered/**"), order="source", attempts_max=5),
        TopicSettings(pattern=Pattern("shared/**"), distribution="balanced"),
    )
    settings = DispatchSettings(retry_backoff_s_min=0.001, retry_backoff_s_max=0.01, **dispatch)
    with serving(
        Config(node=ANY_PORT, journal=JournalSettings(kind="memory"), dispatch=settings, topics=rules)
    ) as node:
        asyncio.run(within(node.urls[0]))


def payloads(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


async def take(events: Subscription, count: int) -> list[Event]:
    return [await anext(events) for _ in range(count)]


async def stays_silent(coming: Awaitable[Event], session: Session, topic: str) -> asyncio.Future[Event]:
    """Nothing comes, although the node has delivered everything else that was published before now."""
    waiting = asyncio.ensure_future(coming)
    async with session.subscribe(topic, history=True) as others:
        await anext(others)
    await session.publish("else", b"")
    assert not waiting.done()
    return waiting


def test_paused_subscriber_gets_nothing_until_it_resumes_and_others_go_on() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            connect(url) as other,
            session.subscribe("a", name="one") as ours,
            other.subscribe("a", name="two") as theirs,
        ):
            await session.publish("a", b"0")
            assert [event.payload for event in await take(ours, 1)] == [b"0"]
            await ours.pause()
            assert ours.is_paused
            await session.publish_many("a", payloads(1, 5))
            assert [event.payload for event in await take(theirs, 5)] == payloads(0, 5)
            waiting = await stays_silent(anext(ours), session, "a")
            await ours.resume()
            assert (await waiting).payload == b"1"
            assert [event.payload for event in await take(ours, 3)] == payloads(2, 5)

    run(program)


def test_events_that_were_not_seen_go_back_without_a_failed_attempt() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("a", name="one") as events:
            await session.publish_many("a", payloads(0, 10))
            first = await anext(events)
            await events.pause()
            await events.resume()
            rest = await take(events, 9)
            assert first.payload == b"0"
            assert sorted(one.payload for one in rest) == payloads(1, 10)
            await rest[0].fail()
            await anext(events)
            assert (await ends(session, "one"))["dead_lettered"] == 0

    run(program, attempts_max=2)


async def ends(session: Session, name: str) -> dict[str, int]:
    """How the events of a subscriber ended."""
    [row] = [row for row in await session.ledger("a") if row["subscriber"] == name]
    return {key: row[key] for key in ("accepted", "dead_lettered", "lost")}


async def ended(session: Session, name: str, how: str, count: int) -> None:
    """Return when so many events of a subscriber have ended so."""
    while (await ends(session, name))[how] < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_no_lease_ends_while_a_subscriber_pauses() -> None:
    """Another subscriber holds its event without a word: when that is a dead letter, a lease has ended."""

    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            session.subscribe("a", name="one", auto_accept=False) as events,
            session.subscribe("a", name="two", auto_accept=False) as others,
        ):
            await session.publish_many("a", payloads(0, 10))
            await (await anext(events)).accept()
            await events.pause()
            await anext(others)
            await ended(session, "two", "dead_lettered", 1)
            await events.resume()
            for event in await take(events, 9):
                await event.accept()
            await ended(session, "one", "accepted", 10)
            assert await ends(session, "one") == {"accepted": 10, "dead_lettered": 0, "lost": 0}

    run(program, lease_s=0.2, attempts_max=1)


def test_order_holds_across_a_pause() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("ordered/a", name="one") as events:
            await session.publish_many("ordered/a", payloads(0, 20))
            seen = [event.payload for event in await take(events, 5)]
            await events.pause()
            await session.publish_many("ordered/a", payloads(20, 30))
            await events.resume()
            seen += [event.payload for event in await take(events, 25)]
            assert seen == payloads(0, 30)

    run(program)


def test_other_members_of_a_queue_get_what_a_paused_one_had() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            connect(url) as other,
            session.subscribe("a", queue="workers") as ours,
        ):
            await session.publish_many("a", payloads(0, 10))
            seen = [(await anext(ours)).payload]
            await ours.pause()
            async with other.subscribe("a", queue="workers") as theirs:
                seen += [event.payload for event in await take(theirs, 9)]
                assert sorted(seen) == payloads(0, 10)

    run(program)


def test_events_of_a_topic_with_a_distribution_go_to_others_meanwhile() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            connect(url) as other,
            session.subscribe("shared/a") as ours,
            other.subscribe("shared/a") as theirs,
        ):
            await ours.pause()
            await session.publish_many("shared/a", payloads(0, 10))
            assert sorted(one.payload for one in await take(theirs, 10)) == payloads(0, 10)

    run(program)


def test_pause_outlasts_a_lost_connection() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            connect(url) as other,
            session.subscribe("a", name="one") as events,
        ):
            await events.pause()
            session.connection.drop()
            await other.publish("a", b"x")
            waiting = await stays_silent(anext(events), other, "a")
            await session.publish("a", b"y")  # it is connected again
            assert not waiting.done()
            await events.resume()
            assert (await waiting).payload == b"x"

    run(program)


def test_blocking_subscriber_pauses_too() -> None:
    settings = DispatchSettings(retry_backoff_s_min=0.001, retry_backoff_s_max=0.01)
    config = Config(node=ANY_PORT, journal=JournalSettings(kind="memory"), dispatch=settings)
    with (
        serving(config) as node,
        connect_sync(node.urls[0]) as session,
        session.subscribe("a", name="one") as events,
    ):
        session.publish_many("a", payloads(0, 10))
        seen = [next(events).payload]
        events.pause()
        events.resume()
        seen += [next(events).payload for _ in range(9)]
        assert sorted(seen) == payloads(0, 10)

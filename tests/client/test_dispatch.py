"""Dispatching as a program sees it: over a session with a real node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reknit import connect, connect_sync
from reknit.client.dead_letters import drop, letters, redrive, waiting
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, DispatchSettings, JournalSettings, LimitSettings, TopicSettings
from reknit.dead_letter import DeadLetterFilter, read_letter
from reknit.event import Event
from reknit.outcome import Code, Reason
from reknit.topic import Pattern
from reknit.wire.messages import Revoked
from tests.client.node_thread import ANY_PORT, serving

PATIENCE_S = 30.0


def run(program: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await program

    asyncio.run(within())


@contextmanager
def node(**sections: Any) -> Iterator[str]:
    """The address of a node with these settings, which tries again soon."""
    sections.setdefault("dispatch", DispatchSettings(retry_backoff_s_min=0.001, retry_backoff_s_max=0.01))
    with serving(Config(node=ANY_PORT, journal=JournalSettings(kind="memory"), **sections)) as made:
        yield made.urls[0]


async def next_of(events: Subscription) -> Event:
    return await anext(events)


def test_failure_with_a_code_that_is_never_retried_is_a_dead_letter() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("a", name="audit") as events:
            await session.publish("a", b"x")
            await (await next_of(events)).fail(code=Code.INVALID_ARGUMENT, text="no json")
            [(_, letter)] = await some_letters(session, 1)
            assert (letter.code, letter.text, letter.attempts) == (Code.INVALID_ARGUMENT, "no json", 1)

    with node() as url:
        run(program(url))


async def some_letters(session: Session, count: int, wanted: DeadLetterFilter | None = None) -> list[Any]:
    """Once so many dead letters wait."""
    while await waiting(session) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return [one async for one in letters(session, wanted)]


def test_anyone_can_subscribe_to_dead_letters() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            session.subscribe("reknit/dead-letters") as told,
            session.subscribe("a", name="audit") as events,
        ):
            await session.publish("a", b"x")
            await (await next_of(events)).reject(Code.DATA_LOSS, "torn")
            letter = read_letter((await next_of(told)).payload)
            assert (letter.reason, letter.code, letter.payload) == (Reason.REJECTED, Code.DATA_LOSS, b"x")

    with node() as url:
        run(program(url))


def test_event_in_progress_is_kept_and_one_without_a_word_is_lost() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as session,
            session.subscribe("a", name="audit", auto_accept=False) as events,
        ):
            await session.publish_many("a", [b"busy", b"hangs"])
            busy, hangs = await next_of(events), await next_of(events)
            working = asyncio.create_task(keep_at(busy))
            again = await next_of(events)
            assert (again.id, again.attempt) == (hangs.id, 2)
            working.cancel()
            await busy.accept()
            await again.accept()
            await hangs.accept()
        async with connect(url) as session:
            [row] = await session.ledger()
            assert (row["accepted"], row["in_flight"]) == (2, 0)

    async def keep_at(event: Event) -> None:
        while True:
            await event.in_progress()
            await asyncio.sleep(0.02)

    dispatch = DispatchSettings(lease_s=1.0, retry_backoff_s_min=0.0, retry_backoff_s_max=0.001)
    with node(dispatch=dispatch) as url:
        run(program(url))


def test_events_that_the_node_took_back_are_neither_shown_nor_accepted() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            async with session.subscribe("a", name="audit") as events:
                await session.publish_many("a", [b"0", b"1", b"2"])
                first = await next_of(events)
                events.receive(Revoked(events.sub, "a", first.source, 2, 4))
            [row] = await session.ledger()
            assert (row["accepted"], row["in_flight"]) == (1, 2)
            async with session.subscribe("a", name="audit") as events:
                assert [(await next_of(events)).payload for _ in "12"] == [b"1", b"2"]

    with node() as url:
        run(program(url))


def test_ordered_events_behind_a_failed_one_wait_for_it() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("a", name="audit") as events:
            await session.publish_many("a", [b"%d" % n for n in range(5)])
            got: list[tuple[bytes, int]] = []
            async for event in events:
                got.append((event.payload, event.attempt))
                if event.payload == b"2" and event.attempt < 3:
                    await event.fail()
                if event.payload == b"4":
                    break
            assert [payload for payload, _ in got] == [b"0", b"1", b"2", b"2", b"2", b"3", b"4"]

    rule = TopicSettings(pattern=Pattern("a"), order="source", attempts_max=9)
    with node(topics=(rule,)) as url:
        run(program(url))


def test_releasing_an_old_delivery_of_an_ordered_event_holds_nothing_up() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("a", name="audit") as events:
            await session.publish_many("a", [b"0", b"1"])
            old = await next_of(events)
            await old.release()
            await (await next_of(events)).release()
            await (await next_of(events)).accept()
            await old.release()  # it ended meanwhile
            await session.publish("a", b"2")
            assert [(await next_of(events)).payload for _ in "12"] == [b"1", b"2"]

    rule = TopicSettings(pattern=Pattern("a"), order="source", attempts_max=9)
    with node(topics=(rule,)) as url:
        run(program(url))


def test_who_gives_back_an_ordered_event_without_a_name_is_told_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("**") as events:
            await session.publish_many("accounts/a", [b"1", b"2"])
            await session.publish("other", b"3")
            for _ in range(3):
                await (await next_of(events)).release()

    rule = TopicSettings(pattern=Pattern("accounts/**"), order="source", attempts_max=9)
    with node(topics=(rule,)) as url, caplog.at_level(logging.WARNING, "reknit.client"):
        run(program(url))
    assert [record.getMessage() for record in caplog.records] == [
        "accounts/a is ordered, but this subscriber has no name, so later events do not wait for a redelivery: "
        "subscribe with name=…"
    ]


@pytest.mark.parametrize("is_by_rule", [False, True])
def test_event_that_fails_past_its_ttl_is_a_dead_letter_for_unnamed_subscribers_too(is_by_rule: bool) -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("a") as events:
            await session.publisher("a", ttl_ms=0 if is_by_rule else 300).publish(b"x")
            failing = asyncio.create_task(fail_all(events))
            [(_, letter)] = await some_letters(session, 1)
            failing.cancel()
            assert (letter.reason, letter.subscriber) == (Reason.EXPIRED, "")
            assert letter.attempts >= 2

    rule = TopicSettings(pattern=Pattern("a"), ttl_ms=300)
    with node(topics=(rule,) if is_by_rule else ()) as url:
        run(program(url))


async def fail_all(events: Subscription) -> None:
    async for event in events:
        await event.fail()


def test_ordered_events_wait_for_a_blocking_program_too() -> None:
    rule = TopicSettings(pattern=Pattern("a"), order="source", attempts_max=9)
    with (
        node(topics=(rule,)) as url,
        connect_sync(url) as session,
        session.subscribe("a", name="audit") as events,
    ):
        session.publish_many("a", [b"%d" % n for n in range(4)])
        got: list[bytes] = []
        for event in events:
            got.append(event.payload)
            if event.payload == b"1" and event.attempt == 1:
                event.fail()
            if event.payload == b"3":
                break
    assert got == [b"0", b"1", b"1", b"2", b"3"]


def test_poisoned_key_does_not_hold_up_others() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("a", name="audit") as events:
            payloads = [b"bad 1", b"good 1", b"bad 2", b"good 2"]
            await session.publisher("a").publish_many(payloads, keys=["b", "g", "b", "g"])
            good: list[bytes] = []
            async for event in events:
                if event.payload.startswith(b"bad"):
                    await event.fail()
                else:
                    good.append(event.payload)
                if len(good) == 2:
                    break
            assert good == [b"good 1", b"good 2"]

    rule = TopicSettings(pattern=Pattern("a"), order="key", attempts_max=1000)
    with node(topics=(rule,)) as url:
        run(program(url))


def test_paused_topic_is_not_handed_out_until_it_is_resumed() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, session.subscribe("**", name="audit") as events:
            assert await session.pause("a") == ["a"]
            await session.publish("a", b"later")
            await session.publish("b", b"now")
            assert (await next_of(events)).payload == b"now"
            assert await session.ask("paused") == ["a"]
            assert await session.resume("a") == []
            assert (await next_of(events)).payload == b"later"

    with node() as url:
        run(program(url))


def test_publisher_waits_while_a_subscribers_queue_is_full() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session, connect(url) as other:
            async with session.subscribe("a", name="audit"):
                pass
            await session.publish_many("a", [b"x"] * 10)
            waits = asyncio.ensure_future(other.publish("a", b"one too many"))
            await asyncio.sleep(0)
            await other.ask("status")
            assert not waits.done()
            await other.publish_many("b", [b"another topic", b"does not wait"])
            assert not waits.done()
            async with session.subscribe("a", name="audit") as events:
                got = [await next_of(events) for _ in range(10)]
                for event in got:
                    await event.accept()
                await waits
                assert (await next_of(events)).payload == b"one too many"

    with node(limits=LimitSettings(queue_events_max=10, queue_reserve_percent=0)) as url:
        run(program(url))


def test_letters_are_redriven_at_a_rate_and_dropped() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            async with session.subscribe("a", name="audit", auto_accept=False) as events:
                await session.publish_many("a", [b"%d" % n for n in range(20)])
                async for batch in events.batches():
                    await batch.reject(Code.DATA_LOSS, "torn")
                    if batch.stop > 20:
                        break
            assert len(await some_letters(session, 20, DeadLetterFilter(topic="a", code="data_loss"))) == 20
            steps = [body async for body in redrive(session, rate=100.0)]
            assert [body["count"] for body in steps] == [10, 10]
            assert await waiting(session) == 0
            async with session.subscribe("a", name="audit", auto_accept=False) as events:
                again = [await next_of(events) for _ in range(20)]
                assert [event.payload for event in again] == [b"%d" % n for n in range(20)]
                assert len({event.headers["redriven"] for event in again}) == 20
                await again[0].reject(Code.DATA_LOSS, "still torn")
            [(_, letter)] = await some_letters(session, 1)
            assert letter.redriven == 1
            assert [body["count"] async for body in drop(session)] == [1]
            assert await waiting(session) == 0

    with node() as url:
        run(program(url))


def test_payload_comes_back_byte_for_byte() -> None:
    """The payload is never opened: it comes back as it was, byte for byte."""

    async def program(url: str) -> None:
        payload = bytes(range(256))
        async with connect(url) as session, session.subscribe("a", name="audit") as events:
            await session.publish("a", payload)
            await (await next_of(events)).reject()
            await some_letters(session, 1)
            assert [body["topics"] async for body in redrive(session)] == [{"a": 1}]
            assert (await next_of(events)).payload == payload

    with node() as url:
        run(program(url))

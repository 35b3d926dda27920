"""Sessions with a node, as a program uses them."""

from __future__ import annotations

import asyncio

import pytest

import reknit
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, TransportSettings
from reknit.dead_letter import read_letter
from reknit.errors import Closed, InvalidTopic, NotConnected, Refused
from reknit.outcome import Code
from tests.client.node_thread import run

pytestmark = pytest.mark.real


async def taken(events: Subscription, count: int) -> list[bytes]:
    return [(await anext(events)).payload for _ in range(count)]


def test_single_publishes_of_one_turn_become_one_batch(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("a") as events:
            await asyncio.gather(*(session.publish("a", b"%d" % n) for n in range(100)))
            batch = await anext(events.batches())
            assert batch.count == 100

    run(program())


def test_one_caller_that_gives_up_does_not_disturb_the_others(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            impatient = asyncio.create_task(publish(session, b"1"))
            patient = asyncio.create_task(publish(session, b"2"))
            await asyncio.sleep(0)
            impatient.cancel()
            await patient
            with pytest.raises(asyncio.CancelledError):
                await impatient
            assert (await session.status())["journal"]["events"] == 2

    async def publish(session: reknit.Session, payload: bytes) -> None:
        await session.publish("a", payload)

    run(program())


def test_a_checkpoint_does_not_skip_what_was_not_processed(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            await session.publish_many("a", [b"%d" % n for n in range(10)])
            async with session.subscribe("a", history=True) as events:
                await taken(events, 4)
                here = events.checkpoint
            async with session.subscribe("a", start=here) as events:
                assert await taken(events, 2) == [b"3", b"4"]

    run(program())


def test_failed_events_come_again_with_their_attempt(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("a", auto_accept=False) as events:
            await session.publish("a", b"1")
            first = await anext(events)
            await first.fail()
            second = await anext(events)
            assert (second.id, second.attempt) == (first.id, 2)
            await second.accept()

    run(program())


def test_a_rejected_event_is_a_dead_letter_with_its_reason(url: str) -> None:
    async def program() -> None:
        async with (
            reknit.connect(url) as session,
            session.subscribe("a", name="audit") as events,
            session.subscribe("reknit/dead-letters") as letters,
        ):
            await session.publish("a", b"oops")
            event = await anext(events)
            await event.reject(Code.INVALID_ARGUMENT, "not a number")
            letter = read_letter((await anext(letters)).payload)
            assert (letter.topic, letter.seq, letter.payload) == ("a", 1, b"oops")
            assert (letter.subscriber, letter.text) == ("audit", "not a number")

    run(program())


def test_a_named_session_goes_on_in_its_seqs(url: str) -> None:
    async def program() -> None:
        for wanted in (1, 2, 3):
            async with reknit.connect(url, name="sensor-7") as session, session.subscribe("a") as events:
                await session.publish("a", b"x")
                assert (await anext(events)).seq == wanted

    run(program())


def test_a_second_subscriber_takes_over_a_durable_name(url: str) -> None:
    async def program() -> None:
        async with (
            reknit.connect(url) as first,
            reknit.connect(url) as second,
            first.subscribe("a", name="audit") as old,
            second.subscribe("a", name="audit") as new,
        ):
            await first.publish("a", b"1")
            assert await taken(new, 1) == [b"1"]
            with pytest.raises(Refused):
                await anext(old)

    run(program())


@pytest.mark.parametrize("after_leaving", [False, True])
def test_forgotten_subscriber_is_owed_nothing(url: str, after_leaving: bool) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            async with session.subscribe("a", name="audit") as events:
                await session.publish("a", b"1")
                if not after_leaving:
                    await events.forget()
            if after_leaving:
                await events.forget()
            assert [row for row in await session.ledger() if row["subscriber"] == "audit"] == []

    run(program())


def test_a_subscriber_without_a_name_is_forgotten_at_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("a") as events:
            await events.forget()
            await session.publish("a", b"1")
            assert await taken(events, 1) == [b"1"]

    run(program())
    assert caplog.messages == []


def test_misuse_is_told_to_the_caller(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            with pytest.raises(InvalidTopic):
                await session.publish("a/*", b"")
            with pytest.raises(InvalidTopic):
                session.subscribe("a//b")
            with pytest.raises(Refused, match="is not a request"):
                await session.ask("weather")
            publisher = session.publisher("a")
        with pytest.raises(Closed):
            await publisher.publish(b"")

    run(program())


def test_no_node_is_an_error() -> None:
    async def program() -> None:
        with pytest.raises(NotConnected):
            async with reknit.connect("tcp://127.0.0.1:9", wait_s=0):
                pass

    run(program())


def test_a_node_is_waited_for_as_long_as_was_said() -> None:
    """Not only until the next pause between two attempts would be too long."""
    config = Config(transport=TransportSettings(reconnect_backoff_s_min=0.4, reconnect_backoff_s_max=9.0))

    async def program() -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(NotConnected):
            await reknit.connect("tcp://127.0.0.1:9", wait_s=0.5, config=config).open()
        assert clock() - began >= 0.5

    run(program())

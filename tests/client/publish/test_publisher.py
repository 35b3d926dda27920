"""How calls become batches, and what happens at a publisher's limits."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reknit
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, LimitSettings
from reknit.errors import Full
from tests.client.node_thread import run, serving

pytestmark = pytest.mark.real

SMALL = Config(limits=LimitSettings(batch_bytes=512, batch_events_max=20, publish_window_bytes=1 << 20))
NARROW = LimitSettings(publish_window_bytes=1024, batch_bytes=512, publish_waiting_max=100)
TEN = [b"x" * 100] * 10


async def batches_of(events: Subscription, count: int) -> list[list[bytes]]:
    """The payloads of the batches that bring so many events."""
    found: list[list[bytes]] = []
    async for batch in events.batches():
        found.append(batch.payloads())
        if sum(map(len, found)) >= count:
            break
    return found


def test_calls_of_one_turn_share_a_batch(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("a") as events:
            calls = [session.publish_many("a", [b"%d" % n] * 3) for n in range(5)]
            await asyncio.gather(*calls)
            assert await batches_of(events, 15) == [[b"%d" % n for n in range(5) for _ in range(3)]]

    run(program())


def test_a_call_is_never_cut_where_it_fits_a_batch(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url, config=SMALL) as session, session.subscribe("a") as events:
            publisher = session.publisher("a")
            for _ in range(3):
                publisher.publish_many([b"x" * 100] * 3)  # 312 bytes: two of them are over the limit
            for _ in range(3):
                publisher.publish_many([b""] * 8)  # the third is over the limit of events
            await publisher.flush()
            assert list(map(len, await batches_of(events, 33))) == [3, 3, 3 + 8 + 8, 8]

    run(program())


Call = tuple[str, list[Any]]
payloads = st.one_of(
    st.binary(max_size=200), st.text(max_size=20), st.lists(st.integers(0, 9)).map(lambda n: array("I", n))
)
calls: st.SearchStrategy[Call] = st.one_of(
    st.tuples(st.just("many"), st.lists(payloads, max_size=30)),
    st.tuples(st.just("publish"), st.lists(payloads, min_size=1, max_size=1)),
    st.tuples(st.just("send"), st.lists(st.binary(max_size=200), min_size=1, max_size=1)),
    st.tuples(st.just("turn"), st.just([])),
)


@pytest.mark.parametrize("name", ["", "sensor"])
def test_whatever_is_called_arrives_in_its_order(url: str, name: str) -> None:
    """Also in a named session, where nothing is numbered before the node has told the past."""
    topics = iter(f"a/{number}" for number in range(1_000_000))

    @settings(max_examples=40, deadline=None)
    @given(st.lists(calls, max_size=20))
    def check(called: list[Call]) -> None:
        run(program(next(topics), called))

    async def program(topic: str, called: list[Call]) -> None:
        wanted = [as_bytes(one) for _, many in called for one in many]
        async with (
            reknit.connect(url, name=f"{name}-{topic}" if name else "", config=SMALL) as session,
            session.subscribe(topic) as events,
        ):
            publisher = session.publisher(topic)
            for kind, many in called:
                await make(publisher, kind, many)
            assert publisher.unkept <= len(wanted)
            await publisher.flush()
            found = await batches_of(events, len(wanted)) if wanted else []
            assert [one for batch in found for one in batch] == wanted
            assert publisher.next_seq == len(wanted) + 1

    async def make(publisher: Any, kind: str, many: list[Any]) -> None:
        match kind:
            case "many":
                publisher.publish_many(many)
            case "publish":
                publisher.publish(many[0])
            case "send":
                publisher.send(many[0])
            case "turn":
                await asyncio.sleep(0)

    check()


def as_bytes(payload: bytes | str | array[int]) -> bytes:
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def calls_until_full(call: Callable[[], object]) -> tuple[int, str]:
    """How many calls are taken before the publisher says that it is full, and how it says so."""
    for number in range(1_000):
        try:
            call()
        except Full as error:
            return number, str(error)
    pytest.fail("it takes whatever comes")


def run_narrow(program: Callable[[reknit.Session], Coroutine[Any, Any, None]]) -> None:
    """A program in a session whose window holds ten events of 100 bytes, at a node of its own."""

    async def connected() -> None:
        async with reknit.connect(node.urls[0], config=Config(limits=NARROW)) as session:
            await program(session)

    with serving() as node:
        run(connected())


async def kept(session: reknit.Session) -> int:
    return int((await session.status())["journal"]["events"])


def test_calls_that_wait_for_room_are_bounded() -> None:
    async def program(session: reknit.Session) -> None:
        publisher = session.publisher("a")
        calls, text = calls_until_full(lambda: publisher.publish_many(TEN))
        assert "limits.publish_waiting_max" in text
        assert 10 <= calls <= 12
        await publisher.flush()
        await publisher.publish_many(TEN)  # there is room again
        assert await kept(session) == 10 * (calls + 1)

    run_narrow(program)


def test_who_always_has_more_under_way_than_the_window_goes_on() -> None:
    async def program(session: reknit.Session) -> None:
        publisher = session.publisher("a")
        calls = [publisher.publish_many(TEN) for _ in range(6)]
        for number in range(200):
            await calls[number]
            calls.append(publisher.publish_many(TEN))
        await publisher.flush()
        assert await kept(session) == 10 * len(calls)

    run_narrow(program)


def test_without_waiting_a_full_window_is_an_error() -> None:
    async def program(session: reknit.Session) -> None:
        publisher = session.publisher("a", wait=False)
        publisher.publish_many(TEN)
        with pytest.raises(Full):
            publisher.publish_many(TEN)
        await publisher.flush()

    run_narrow(program)


def test_an_event_that_was_refused_for_want_of_room_is_not_sent() -> None:
    async def program(session: reknit.Session) -> None:
        publisher = session.publisher("a", wait=False)
        taken, text = calls_until_full(lambda: publisher.send(TEN[0]))
        assert "limits.publish_window_bytes" in text
        await publisher.flush()
        assert await kept(session) == taken

    run_narrow(program)

"""Queues as programs see them: each event goes to one of those that subscribe with `queue=`."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from reknit import connect, connect_sync
from reknit.client.options import SubscribeOptions, check_subscription
from reknit.client.session import Session
from reknit.config import DispatchSettings, TopicSettings
from reknit.errors import LocalError, Refused
from reknit.outcome import Code
from reknit.testing.fabric.user import run_simulated, simulated_fabric
from reknit.topic import Pattern
from tests.client.test_dispatch import node, run, some_letters


async def work(
    session: Session, done: list[tuple[str, int]], name: str, pause_s: float = 0.0, **options: Any
) -> None:
    """Process events until cancelled."""
    async with session.subscribe("jobs/**", queue="workers", **options) as events:
        async for event in events:
            await asyncio.sleep(pause_s)
            done.append((name, int(event.payload)))


async def until_done(done: list[tuple[str, int]], count: int) -> None:
    while len({number for _, number in done}) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_burst_is_shared_and_every_event_is_processed_once() -> None:
    async def program(url: str) -> None:
        done: list[tuple[str, int]] = []
        async with connect(url) as one, connect(url) as two, connect(url) as sender:
            tasks = [asyncio.create_task(work(one, done, "one", 0.001))]
            tasks += [asyncio.create_task(work(two, done, "two", 0.001))]
            await _members(sender, 2)
            await sender.publish_many("jobs/a", [str(number) for number in range(400)])
            await until_done(done, 400)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(number for _, number in done) == list(range(400))
        counts = Counter(name for name, _ in done)
        assert min(counts.values()) > 100, counts

    with node() as url:
        run(program(url))


async def _members(session: Session, count: int) -> None:
    """Wait until the queue has so many members."""
    while not any(row["members"] == count for row in (await session.status())["subscribers"]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_queue_goes_on_where_its_members_left_off() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            async with session.subscribe("jobs/**", queue="workers") as events:
                await session.publish_many("jobs/a", ["0", "1", "2"])
                assert (await anext(events)).payload == b"0"
                assert (await anext(events)).payload == b"1"
            await session.publish("jobs/a", "3")
            async with session.subscribe("jobs/**", queue="workers") as events:
                assert sorted([int((await anext(events)).payload) for _ in range(2)]) == [2, 3]

    with node() as url:
        run(program(url))


def test_queue_with_history_begins_with_what_is_held() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            await session.publish_many("jobs/a", ["0", "1"])
            async with session.subscribe("jobs/**", queue="workers", history=True) as events:
                assert [int((await anext(events)).payload) for _ in range(2)] == [0, 1]

    with node() as url:
        run(program(url))


def test_released_event_goes_to_another_member_and_failures_end_in_a_dead_letter() -> None:
    async def program(url: str) -> None:
        async with connect(url) as one, connect(url) as two:
            first = one.subscribe("jobs/**", queue="workers", auto_accept=False)
            second = two.subscribe("jobs/**", queue="workers", auto_accept=False)
            async with first as some, second as others:
                await one.publish("jobs/a", "x")
                attempts: list[int] = []
                waiting = {asyncio.ensure_future(anext(events)): events for events in (some, others)}
                while len(attempts) < 3:
                    ready, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in ready:
                        events = waiting.pop(task)
                        attempts.append(task.result().attempt)
                        await task.result().fail(text="no")
                        waiting[asyncio.ensure_future(anext(events))] = events
                for task in waiting:
                    task.cancel()
                [(_, letter)] = await some_letters(one, 1)
                assert attempts == [1, 2, 3]
                assert (letter.subscriber, letter.attempts) == ("queue/workers", 3)

    quick = DispatchSettings(retry_backoff_s_min=0.001, retry_backoff_s_max=0.01, attempts_max=3)
    with node(dispatch=quick) as url:
        run(program(url))


def test_key_is_processed_in_order_whoever_has_it() -> None:
    async def program(url: str) -> None:
        done: list[tuple[str, int]] = []
        busy: dict[str, str] = {}

        async def worker(session: Session, name: str, limit: int) -> None:
            async with session.subscribe("jobs/**", queue="workers") as events:
                async for event in events:
                    key = f"k{int(event.payload) % 7}"
                    assert busy.setdefault(key, name) == name, "two members have one key"
                    await asyncio.sleep(0.001)
                    done.append((key, int(event.payload)))
                    del busy[key]
                    limit -= 1
                    if not limit:
                        return

        async with connect(url) as one, connect(url) as two, connect(url) as three:
            tasks = [
                asyncio.create_task(worker(session, name, limit))
                for session, name, limit in ((one, "one", 40), (two, "two", 1000), (three, "three", 1000))
            ]
            await _members(three, 3)
            async with three.publisher("jobs/a") as publisher:
                keys = [f"k{number % 7}" for number in range(300)]
                await publisher.publish_many([str(number) for number in range(300)], keys)
            await until_done(done, 300)
            for task in tasks[1:]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for key in range(7):
            numbers = [number for one, number in done if one == f"k{key}"]
            assert numbers == list(range(key, 300, 7))

    with node(topics=(TopicSettings(pattern=Pattern("jobs/**"), order="key", attempts_max=9),)) as url:
        run(program(url))


def test_event_that_is_given_back_comes_before_the_rest_of_its_key() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            async with session.publisher("jobs/a") as publisher:
                numbers = [str(number) for number in range(20)]
                await publisher.publish_many(numbers, ["k"] * 20)
            got: list[int] = []
            async with session.subscribe(
                "jobs/**", queue="workers", history=True, auto_accept=False
            ) as events:
                async for event in events:
                    number = int(event.payload)
                    if number % 5 == 3 and event.attempt < 3:
                        await event.fail()
                        continue
                    got.append(number)
                    await event.accept()
                    if number == 19:
                        break
            assert got == list(range(20))

    with node(topics=(TopicSettings(pattern=Pattern("jobs/**"), order="key", attempts_max=9),)) as url:
        run(program(url))


def test_only_the_last_member_forgets_a_queue() -> None:
    async def program(url: str) -> None:
        async with connect(url) as one, connect(url) as two:
            async with two.subscribe("jobs/**", queue="workers") as other:
                async with one.subscribe("jobs/**", queue="workers") as events:
                    pass
                with pytest.raises(Refused, match="1 other member"):
                    await events.forget()
            await other.forget()
            assert not [row for row in (await one.status())["subscribers"] if row["name"] == "queue/workers"]

    with node() as url:
        run(program(url))


def test_second_program_with_one_name_is_told_to_use_a_queue() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as one,
            connect(url) as two,
            one.subscribe("jobs/**", name="workers") as events,
            two.subscribe("jobs/**", name="workers"),
        ):
            with pytest.raises(Refused, match="queue="):
                await anext(events)

    with node() as url:
        run(program(url))


def test_name_of_a_queue_is_not_taken_by_a_durable_subscriber() -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            with pytest.raises(Refused, match="queue='workers'") as refused:
                async with session.subscribe("jobs/**", name="queue/workers"):
                    pass
            assert refused.value.code == Code.INVALID_ARGUMENT

    with node() as url:
        run(program(url))


@pytest.mark.parametrize("queue", ["my workers", "a/b", "x" * 256, "line\n"])
def test_invalid_queue_is_refused_before_it_is_sent(queue: str) -> None:
    async def program(url: str) -> None:
        async with connect(url) as session:
            with pytest.raises(LocalError, match="queue"):
                session.subscribe("jobs/**", queue=queue)
            with pytest.raises(LocalError, match="no name"):
                session.subscribe("jobs/**", queue="workers", name="me")

    with node() as url:
        run(program(url))


def test_blocking_members_share_a_queue() -> None:
    with node() as url, connect_sync(url) as one, connect_sync(url) as two:
        with (
            one.subscribe("jobs/**", queue="workers") as some,
            two.subscribe("jobs/**", queue="workers") as others,
        ):
            one.publish_many("jobs/a", [str(number) for number in range(8)])
            got = [int(next(events).payload) for events in (some, others) for _ in range(4)]
        assert sorted(got) == list(range(8))


def test_events_that_a_member_has_not_seen_go_back_with_its_connection() -> None:
    """Fabric 120082: it went on with the batch that it was reading, while another member had these events."""

    async def member(url: str, seen: list[tuple[bytes, int]]) -> None:
        network = asyncio.get_running_loop().fabric.network  # type: ignore[attr-defined]
        async with connect(url) as session, session.subscribe("jobs/**", queue="workers") as events:
            await session.publish_many("jobs/a", ["0", "1", "2"])
            await anext(events)
            for host in network.hosts:
                network.reset(host)
            await asyncio.sleep(1.0)
            for _ in range(2):
                event = await anext(events)
                seen.append((bytes(event.payload), event.attempt))

    async def program() -> None:
        seen: list[tuple[bytes, int]] = []
        async with simulated_fabric() as fabric:
            await fabric.settled()
            await fabric.run(member(fabric.urls[0], seen))
        assert seen == [(b"0", 2), (b"1", 2)]

    run_simulated(program)


def test_members_say_the_order_of_their_queue_and_say_the_same() -> None:
    async def program(url: str) -> None:
        async with (
            connect(url) as one,
            connect(url) as two,
            one.subscribe("jobs/**", queue="workers", order="key", auto_accept=False) as events,
        ):
            with pytest.raises(Refused, match="order='key', and this member asks for order=''"):
                async with two.subscribe("jobs/**", queue="workers"):
                    pass
            async with two.subscribe("jobs/**", queue="workers", order="key", auto_accept=False) as others:
                await one.publisher("jobs/a").publish_many([b"1", b"2", b"3"], ["x", "y", "x"])
                first, second = await anext(aiter(events)), await anext(aiter(others))
                assert {first.payload, second.payload} == {b"1", b"2"}
                await first.accept()
                await second.accept()
                whose = events if first.payload == b"1" else others
                assert (await anext(aiter(whose))).payload == b"3", "a key stays with its member"

    with node() as url:
        run(program(url))


@pytest.mark.parametrize(
    ("options", "why"),
    [({"order": "key"}, "only a queue has one"), ({"queue": "w", "order": "name"}, "'key' or 'source'")],
)
def test_invalid_order_is_refused_in_the_client(options: dict[str, Any], why: str) -> None:
    with pytest.raises(LocalError, match=why):
        check_subscription(SubscribeOptions(**options))

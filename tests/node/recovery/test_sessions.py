"""Recovery over real nodes and sessions, all on one loop: what the machines do, done over connections."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.client.recovery.caches import Cache
from reknit.client.session import Session, connect
from reknit.config import Config, DispatchSettings, RecoverySettings, TopicSettings
from reknit.dead_letter import DeadLetterContent, read_letter
from reknit.errors import Closed, TooFewCopies
from reknit.node.core.keepers import JournalKeeper
from reknit.outcome import Code
from reknit.processes.process import free_port
from reknit.protocol.recovery.cache import CacheBounds, answer
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.server import build_node
from reknit.store.memory import MemoryJournal
from reknit.topic import Pattern
from reknit.wire.messages import Rejection, Settle
from reknit.wire.recovery import Recover
from tests.node.fabric import (
    CLIENT,
    SOURCE,
    TOPIC,
    Losing,
    Told,
    client,
    config,
    fabric,
    fed,
    flowing,
    lose,
    made,
    numbers,
    run,
    take,
    until,
)

pytestmark = pytest.mark.real


def test_a_gap_is_recovered_from_the_nodes_journal() -> None:
    async def test() -> None:
        async with flowing(cache=False) as (events, publisher, losing):
            await lose(losing, publisher, 2, 50)
            await publisher.publish(b"50")
            assert await take(events, 49) == list(range(2, 51))

    run(test)


@pytest.mark.parametrize("bytes_max", [1, 300, 1_000, 5_000, 1 << 20])
def test_a_journal_answers_for_exactly_what_it_speaks_of(bytes_max: int) -> None:
    journal = MemoryJournal()
    for first in range(1, 100, 7):
        one = made(first, first + 7)
        journal.stage(one.data, [one.head])
    journal.commit()
    got: list[int] = []
    wanted = [(1, 300)]
    while wanted:
        asked = Recover(1, TOPIC, SOURCE, wanted, bytes_max)
        batches, [(_, reached)] = answer(JournalKeeper(journal, lambda: 0), asked)
        got += [int(payload) for batch in batches for payload in batch.payloads()]
        wanted = [(reached, 300)] if reached < 300 else []
    assert got == list(range(1, 106))


def test_a_node_that_forgot_everything_recovers_from_the_publishers_own_cache() -> None:
    async def test() -> None:
        port = free_port()
        async with AsyncExitStack() as stack:
            node = build_node(config(port))
            await node.start()
            session = await stack.enter_async_context(client(node))
            reader = await stack.enter_async_context(client(node))
            events = await stack.enter_async_context(reader.subscribe("plant/**"))
            losing = Losing(events, reader)
            publisher = session.publisher(TOPIC)
            await publisher.publish(b"1")
            assert await take(events, 1) == [1]
            losing.is_on = True
            await publisher.publish_many(numbers(2, 101))
            await node.stop()
            again = build_node(config(port))
            await again.start()
            stack.push_async_callback(again.stop)
            losing.is_on = False
            assert await take(events, 99) == list(range(2, 101)), "by the heartbeat after the reconnection"
            await publisher.publish(b"101")
            assert await take(events, 1) == [101]

    run(test)


def test_without_any_cache_the_loss_is_reported_once_with_its_range() -> None:
    async def test() -> None:
        told = Told()
        async with flowing(told, cache=False, recover=False) as (events, publisher, losing):
            await lose(losing, publisher, 2, 5)
            await publisher.publish_many(numbers(5, 7))
            assert await take(events, 2) == [5, 6]
            assert told.ranges == [(2, 5)]
            assert told.reasons == {"gone"}

    run(test)


def test_what_the_node_lacks_is_recovered_from_a_further_node() -> None:
    async def test() -> None:
        async with (
            fabric(config(), config()) as [near, far],
            client(near) as session,
            client(far) as other,
        ):
            await other.publisher(TOPIC, source=SOURCE, cache=False).publish_many(numbers(1, 31))
            late = [made(31, 33)]
            wanted = session.subscribe(TOPIC, caches=[far.urls[0]])
            async with wanted as events:
                first = made(10, 11)
                events.receive(subscribing.Delivered([first], 0, 1, False))
                events.receive(subscribing.Delivered(late, 0, 1, False))
                assert await take(events, 23) == list(range(10, 33))

    run(test)


def test_a_node_asks_the_nodes_it_is_configured_with() -> None:
    async def test() -> None:
        async with (
            fabric() as [far],
            fabric(config(caches=(far.urls[0],))) as [near],
            client(far) as other,
            client(near) as session,
        ):
            await other.publisher(TOPIC, source=SOURCE, cache=False).publish_many(numbers(1, 31))
            async with session.subscribe(TOPIC) as events:
                for seq in (10, 32):
                    one = made(seq, seq + 1)
                    events.receive(subscribing.Delivered([one], 0, 1, False))
                assert await take(events, 21) == list(range(10, 31))

    run(test)


def test_a_cache_in_a_client_answers_for_its_node() -> None:
    async def test() -> None:
        async with (
            fabric() as [node],
            client(node) as keeper,
            Cache(keeper, "plant/**") as cache,
            client(node) as session,
            session.subscribe(TOPIC) as events,
        ):
            cache.held.put(made(1, 31), 0)
            for seq in (10, 31):
                one = made(seq, seq + 1)
                events.receive(subscribing.Delivered([one], 0, 1, False))
            assert await take(events, 22) == list(range(10, 32))

    run(test)


def test_a_cache_in_a_client_holds_what_is_published_within_its_bounds() -> None:
    async def test() -> None:
        async with (
            fabric() as [node],
            client(node) as keeper,
            client(node) as session,
            Cache(keeper, "plant/**", CacheBounds(events_max=3)) as cache,
        ):
            publisher = session.publisher(TOPIC)
            await publisher.publish_many(numbers(1, 11))
            await until(lambda: [span.last for span in cache.held.survey(cache.pattern)] == [10])
            assert cache.held.survey(cache.pattern)[0].ranges == [(8, 11)]

    run(test)


@pytest.mark.parametrize(("history", "expected"), [(True, 5), (2, 2), (3_600.0, 5), (timedelta(hours=1), 5)])
def test_history_comes_before_live_events(history: Any, expected: int) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            publisher = session.publisher(TOPIC)
            await publisher.publish_many(numbers(1, 6))
            async with session.subscribe(TOPIC, history=history) as events:
                await publisher.publish(b"6")
                assert await take(events, expected + 1) == list(range(6 - expected, 7))

    run(test)


def test_case_10_history_of_two_publishers_is_the_last_two_of_each() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            await session.publisher(TOPIC).publish_many(numbers(1, 6))
            await session.publisher(TOPIC).publish_many(numbers(11, 16))
            async with session.subscribe(TOPIC, history=2) as events:
                assert sorted(await take(events, 4)) == [4, 5, 14, 15]

    run(test)


def test_case_11_history_by_age_gives_only_the_newer() -> None:
    async def test() -> None:
        now_us = time.time_ns() // 1000
        hour_ago, second, third = (
            Batch.build(SOURCE, TOPIC, seq, numbers(seq, seq + 1), time_us)
            for seq, time_us in ((1, now_us - 3600 * 10**6), (2, now_us), (3, now_us))
        )
        async with fabric() as [node], client(node) as session:
            await fed(node, hour_ago, second)
            async with session.subscribe(TOPIC, history=1800.0) as events:
                await fed(node, third)
                assert await take(events, 2) == [2, 3]

    run(test)


def test_case_09_history_of_a_hundred_thousand_while_events_keep_coming() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session, client(node) as reader:
            publisher = session.publisher(TOPIC)
            await publisher.publish_many(numbers(1, 100_001))

            async def go_on() -> None:
                for number in range(100_001, 110_001):
                    await publisher.send(b"%d" % number)
                await publisher.flush()

            async with asyncio.TaskGroup() as tasks, reader.subscribe(TOPIC, history=True) as events:
                tasks.create_task(go_on())
                assert await take(events, 110_000) == list(range(1, 110_001))

    run(test)


def test_history_of_two_nodes_is_merged() -> None:
    async def test() -> None:
        async with fabric(config(), config()) as [near, far], client(near) as session, client(far) as other:
            await other.publisher(TOPIC, source=SOURCE, cache=False).publish_many(numbers(1, 31))
            await other.publisher(TOPIC, source=b"q" * 16, cache=False).publish_many(numbers(101, 103))
            session.connection.send_buffers([made(21, 41).data])
            await session.status()
            async with session.subscribe(TOPIC, history=True, caches=[far.urls[0]]) as events:
                got = await take(events, 42)
                assert [number for number in got if number < 100] == list(range(1, 41))
                assert [number for number in got if number > 100] == [101, 102]

    run(test)


def test_an_event_is_kept_when_as_many_caches_stored_it_as_the_publisher_wants() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session, client(node) as keeper:
            publisher = session.publisher(TOPIC, stored_by=2)
            kept = publisher.publish(b"1")
            await until(lambda: node.journal.status().events == 1)
            await session.status()  # an ack for the event would have come before the answer
            assert not kept.done(), "only the node has it"
            async with Cache(keeper, "plant/**") as cache:
                await kept
                assert cache.held.survey(cache.pattern)[0].ranges == [(1, 2)]

    run(test)


def test_events_that_too_few_caches_store_do_not_keep_a_session_from_closing() -> None:
    """Nobody but the node is there. Closing waits for others for `recovery.patience_s`, not for ever."""

    async def test() -> None:
        impatient = replace(CLIENT, recovery=RecoverySettings(patience_s=0.05))
        async with fabric() as [node]:
            session = await connect(node.urls[0], config=impatient).open()
            waiting = session.publisher(TOPIC, stored_by=3).publish(b"1")
            await until(lambda: node.journal.status().events == 1)
            with pytest.raises(TooFewCopies, match="stored 1 time, not 3 times"):
                await session.close()
            with pytest.raises(Closed):
                await waiting

    run(test)


def test_a_recovered_event_that_failed_is_handed_out_again() -> None:
    async def test() -> None:
        async with flowing() as (events, publisher, losing):
            await lose(losing, publisher, 2, 3)
            await publisher.publish(b"3")
            event = await anext(events)
            assert event.payload == b"2"
            await event.fail()
            assert await take(events, 1) == [3]
            again = await anext(events)
            assert (again.payload, again.attempt) == (b"2", 2)

    run(test)


def test_a_recovered_event_that_is_rejected_becomes_a_dead_letter() -> None:
    async def test() -> None:
        letters_topic = Config().dispatch.dead_letter_topic
        async with (
            flowing() as (events, publisher, losing),
            losing.session.subscribe(letters_topic) as letters,
        ):
            await lose(losing, publisher, 2, 5)
            await publisher.publish(b"5")
            assert await take(events, 1) == [2]
            await (await anext(events)).reject(code=Code.DATA_LOSS, text="no number")
            assert await take(events, 2) == [4, 5]
            letter = read_letter((await anext(letters)).payload)
            assert (letter.topic, letter.source, letter.seq) == (TOPIC, publisher.source, 3)
            assert (letter.payload, letter.reason, letter.text) == (b"3", "rejected", "no number")
            assert (letter.code, letter.attempts) == (Code.DATA_LOSS, 1)

    run(test)


async def dead(
    wanted: dict[str, Any], outcome: dict[str, Any], **fields: Any
) -> tuple[list[int], DeadLetterContent]:
    """A node by these settings, and an event that is lost, recovered, and fails whenever it comes: its attempts."""
    attempts: list[int] = []
    async with (
        fabric(replace(config(), **wanted)) as [node],
        client(node) as session,
        session.subscribe(TOPIC) as events,
        session.subscribe(Config().dispatch.dead_letter_topic) as letters,
    ):
        publisher = session.publisher(TOPIC, **fields)
        await publisher.publish(b"1")
        assert await take(events, 1) == [1]
        await lose(Losing(events, session), publisher, 2, 3)
        for queue in node.core.dispatch.queues.values():
            queue.end((TOPIC, publisher.source), 2, 3)  # as if it had come from another node
        await publisher.publish(b"3")

        async def fail() -> None:
            async for event in events:
                if event.payload == b"2":
                    attempts.append(event.attempt)
                    await event.fail(**outcome)

        async with asyncio.TaskGroup() as group:
            failing = group.create_task(fail())
            letter = read_letter((await anext(letters)).payload)
            failing.cancel()
        assert (letter.topic, letter.source, letter.seq, letter.payload) == (TOPIC, publisher.source, 2, b"2")
        assert letter.attempts == len(attempts)
    return attempts, letter


def test_a_recovered_event_that_fails_too_often_becomes_a_dead_letter() -> None:
    async def test() -> None:
        attempts, letter = await dead({"dispatch": DispatchSettings(attempts_max=3)}, {"text": "not now"})
        assert attempts == [1, 2, 3]
        assert (letter.reason, letter.text) == ("attempts_exhausted", "3 attempts failed: not now")
        rule = TopicSettings(pattern=Pattern("plant/**"), attempts_max=2)
        assert (await dead({"topics": (rule,)}, {}))[0] == [1, 2]

    run(test)


def test_a_recovered_event_with_a_code_that_is_never_retried_becomes_a_dead_letter() -> None:
    async def test() -> None:
        rules = {"dispatch": DispatchSettings(never_retry=("DATA_LOSS",))}
        attempts, letter = await dead(rules, {"code": Code.DATA_LOSS})
        assert (attempts, letter.reason, letter.code) == ([1], "rejected", Code.DATA_LOSS)

    run(test)


@pytest.mark.parametrize("is_by_rule", [False, True])
def test_a_recovered_event_that_fails_past_its_ttl_becomes_a_dead_letter(is_by_rule: bool) -> None:
    async def test() -> None:
        rule, fields = (
            {"topics": (TopicSettings(pattern=Pattern("plant/**"), ttl_ms=1_000),)},
            {"ttl_ms": 1_000},
        )
        attempts, letter = await (dead(rule, {}) if is_by_rule else dead({}, {}, **fields))
        assert len(attempts) >= 2
        assert (letter.reason, letter.code) == ("expired", Code.DEADLINE_EXCEEDED)

    run(test)


@pytest.mark.parametrize(
    "rejection",
    [Rejection(b"x" * 80, 0, "", 1), Rejection(bytes(made(1, 2).data), 0, "", 1, "bored")],
    ids=["frame", "reason"],
)
def test_a_rejection_that_the_node_can_not_read_ends_the_connection(rejection: Rejection) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session, session.subscribe(TOPIC) as events:
            before = session.connection._connection
            session.connection.send(Settle(events.sub, 1, [], [rejection]))
            await until(lambda: session.connection._connection is not before)

    run(test)


@pytest.mark.parametrize("how", [{"query_s": 0.1}, {"heartbeat_s": 0.1}], ids=["query", "heartbeat"])
def test_a_lost_tail_is_found(how: dict[str, Any]) -> None:
    async def test() -> None:
        async with flowing(**how) as (events, publisher, losing):
            await lose(losing, publisher, 2, 3)
            assert await take(events, 1) == [2]

    run(test)


def test_stable_times_need_no_message_of_recovery() -> None:
    async def test() -> None:
        async with (
            fabric() as [node],
            client(node) as session,
            client(node) as reader,
            reader.subscribe("plant/**") as events,
        ):
            publisher = session.publisher(TOPIC)
            for first in range(1, 10_001, 100):
                await publisher.publish_many(numbers(first, first + 100))
            assert await take(events, 10_000) == list(range(1, 10_001))
            assert node.caches.questions == 0

    run(test)


def test_a_publisher_holds_the_same_for_one_subscriber_and_for_a_thousand() -> None:
    async def held(subscribers: int) -> tuple[int, int, int]:
        async with AsyncExitStack() as stack:
            [node] = await stack.enter_async_context(fabric())
            session = await stack.enter_async_context(client(node))
            reader = await stack.enter_async_context(client(node))
            for _ in range(subscribers):
                await stack.enter_async_context(reader.subscribe(TOPIC))
            publisher = session.publisher(TOPIC, history=100)
            before = _messages(session)
            for first in range(1, 1_001, 50):
                await publisher.publish_many(numbers(first, first + 50))
            assert publisher._recovery.cache is not None
            return publisher._recovery.cache.bytes, publisher.unkept, _messages(session) - before

    def _messages(session: Session) -> int:
        router = session.router
        return len(router.admin_requests) + len(router.caches) + len(router.publishers)

    async def test() -> None:
        assert await held(1) == await held(1_000)

    run(test)

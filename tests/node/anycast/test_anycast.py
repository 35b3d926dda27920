"""Anycast with real nodes over TCP, and our own clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reknit.batch import Batch
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.session import Session, connect
from reknit.errors import Modified, Rejected, Released, Undelivered
from reknit.event import Event
from reknit.outcome import Outcome
from reknit.protocol.anycast.window import FIRST
from tests.node.node_processes import (
    ALL,
    NEAR,
    ORDERS,
    Fabric,
    Log,
    Say,
    accept,
    announced,
    fabric,
    hold,
    modify,
    outcome,
    reject,
    release,
    run,
    subscribing,
    until,
)

pytestmark = pytest.mark.real


def resending(session: Session, topic: str) -> OutcomePublisher:
    publisher = session.publisher(topic, resend_released=True)
    assert isinstance(publisher, OutcomePublisher)
    return publisher


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with fabric(tmp_path_factory.mktemp("one"), names="a") as made:
        yield made


@asynccontextmanager
async def session_at(made: Fabric) -> AsyncIterator[Session]:
    """A session whose node's ledger balances when it is left."""
    async with connect(made.url("a")) as session:
        yield session
        rows = [row for row in await session.ledger() if row["subscriber"].startswith("anycast/")]
        assert {row["balanced"] for row in rows} == {True}


def test_a_released_event_goes_to_the_next_path_if_its_publisher_wants_that(one_node: Fabric) -> None:
    async def test() -> None:
        log: Log = []
        async with (
            session_at(one_node) as session,
            subscribing(one_node, log, NEAR, a1=release, a2=release, a3=accept),
        ):
            assert await outcome(resending(session, NEAR)) is Outcome.ACCEPTED
            assert sorted(log) == [("a1", 1), ("a2", 1), ("a3", 1)]
            plain = session.publisher(NEAR, outcome=True)
            assert isinstance(plain, OutcomePublisher)
            said = [await outcome(plain) for _ in range(6)]
            assert Counter(said) == {Outcome.RELEASED: 4, Outcome.ACCEPTED: 2}

    run(test)


def test_what_everybody_releases_is_released_after_each_was_tried_once(one_node: Fabric) -> None:
    async def test() -> None:
        log: Log = []
        async with (
            session_at(one_node) as session,
            subscribing(one_node, log, ORDERS, a1=release, a2=release, a3=release),
        ):
            publisher = resending(session, ORDERS)
            for number in (1, 2):  # the sender still has credit
                with pytest.raises(Released) as caught:
                    await publisher.publish(b"x")
                assert (caught.value.start, caught.value.node, caught.value.attempts) == (number, "a", 3)
            assert Counter(name for name, _ in log) == {"a1": 2, "a2": 2, "a3": 2}

    run(test)


def receive(event: Event) -> None:
    event.in_progress()
    event.release()


@pytest.mark.parametrize(("say", "error"), [(receive, Released), (reject, Rejected), (modify, Modified)])
def test_no_further_path_is_tried_after(one_node: Fabric, say: Say, error: type[Undelivered]) -> None:
    async def test() -> None:
        log: Log = []
        async with session_at(one_node) as session, subscribing(one_node, log, NEAR, a1=say, a2=accept):
            with pytest.raises(error) as caught:
                await resending(session, NEAR).publish(b"x")
            assert [name for name, _ in log] == ["a1"]
            assert caught.value.node == "a"
            assert caught.value.path

    run(test)


@pytest.mark.parametrize(
    ("one", "two", "joined"),
    [
        (release, accept, Outcome.ACCEPTED),
        (release, release, Outcome.RELEASED),
        (release, modify, Outcome.MODIFIED),
        (accept, reject, Outcome.REJECTED),
    ],
)
def test_what_went_to_all_has_one_outcome(one_node: Fabric, one: Say, two: Say, joined: Outcome) -> None:
    async def test() -> None:
        log: Log = []
        async with session_at(one_node) as session, subscribing(one_node, log, ALL, a1=one, a2=two):
            assert await outcome(resending(session, ALL)) is joined
            assert len(log) == 2

    run(test)


def test_many_re_forwards_leave_nothing_behind(one_node: Fabric) -> None:
    async def test() -> None:
        log: Log = []
        async with session_at(one_node) as session, subscribing(one_node, log, ORDERS, a1=release, a2=accept):
            publisher = resending(session, ORDERS)
            for _ in range(100):
                await asyncio.gather(*(publisher.publish(b"x") for _ in range(100)))
            assert Counter(name for name, _ in log)["a2"] == 10_000
            status = await session.ask("anycast")
            assert status["records"] == 0
            assert [path["unsettled"] for path in status["paths"]] == [0, 0]

    run(test)


def test_a_line_and_back(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "bc") as made:
            log: Log = []
            async with (
                connect(made.url("a")) as at_a,
                connect(made.url("b")) as at_b,
            ):
                async with subscribing(made, log, NEAR, a1=release, b1=release, c1=accept):
                    publisher = resending(at_a, NEAR)
                    assert await outcome(publisher) is Outcome.ACCEPTED
                    assert [name for name, _ in log] == ["a1", "b1", "c1"]
                    _trail(made.url("a"), publisher.source, ["a1", "b", "b1", "c", "c1"])
                log.clear()
                async with subscribing(made, log, NEAR, a1=release, c1=accept):
                    assert await outcome(resending(at_b, NEAR)) is Outcome.ACCEPTED
                    assert [name for name, _ in log] == ["a1", "c1"]
                log.clear()
                async with subscribing(made, log, NEAR, c1=release, b1=release):
                    with pytest.raises(Released):
                        await resending(at_a, NEAR).publish(b"x")
                    assert sorted(name for name, _ in log) == ["b1", "c1"]
                log.clear()
                async with subscribing(made, log, ALL, b1=accept, c1=release):
                    assert await outcome(resending(at_a, ALL)) is Outcome.ACCEPTED
                    assert sorted(name for name, _ in log) == ["b1", "c1"]

    run(test)


def _trail(url: str, source: bytes, paths: list[str]) -> None:
    """`reknit trail` follows an event from node to node; subscribers are named by their sessions."""
    command = [sys.executable, "-m", "reknit", "trail", f"{source.hex()}:1", "--node", url, "--json"]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=150).stdout)
    assert [row["path"] if row["is_node"] else f"{row['node']}1" for row in rows] == paths
    assert [row["outcome"] for row in rows if not row["is_node"]] == ["RELEASED", "RELEASED", "ACCEPTED"]
    assert all(0 < row["sent_us"] <= row["ended_us"] for row in rows)


def test_one_released_event_does_not_drag_its_batch_along(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab") as made:
            async with connect(made.url("a")) as session, connect(made.url("a")) as taker:
                log: Log = []
                async with subscribing(made, log, NEAR, b1=accept):
                    publisher = resending(session, NEAR)
                    async with taker.subscribe(NEAR, auto_accept=False) as events:
                        published = publisher.publish_many([b"%d" % n for n in range(1000)])
                        batch: Batch = (await events.take_all())[0]
                        assert batch.count == 1000
                        batch.events()[500].release()
                        await until(lambda: log == [("b1", 501)])
                        batch.accept()
                        assert await published is Outcome.ACCEPTED
                    assert log == [("b1", 501)]

    run(test)


def test_a_fast_and_a_slow_worker_get_what_they_can_do(tmp_path: Path) -> None:
    """On two nodes. A slow worker holds no more than its first window."""

    async def test() -> None:
        with fabric(tmp_path, "ab") as made:
            log: Log = []
            slow: list[Event] = []
            async with (
                connect(made.url("a")) as session,
                subscribing(made, log, ORDERS, a1=slow.append, a2=accept, b1=accept),
            ):
                published = resending(session, ORDERS).publish_many([b"x"] * 1000)
                await until(lambda: len({seq for name, seq in log if name != "a1"}) + len(slow) == 1000)
                assert len(slow) == FIRST
                assert {name for name, _ in log} == {"a1", "a2", "b1"}
                for event in slow:
                    event.accept()
                assert await published is Outcome.ACCEPTED

    run(test)


def test_a_diamond(tmp_path: Path) -> None:
    """The far end is tried once; and when a node is killed under load, nothing is released and nothing is lost."""

    async def test() -> None:
        with fabric(tmp_path, "ab", "ac", "bd", "cd") as made:
            await made.sees("a", "bcd")
            log: Log = []
            async with connect(made.url("a")) as session:
                async with subscribing(made, log, ORDERS, d1=release):
                    with pytest.raises(Released):
                        await resending(session, ORDERS).publish(b"x")
                    assert log == [("d1", 1)]
                log.clear()
                async with subscribing(made, log, ORDERS, d1=accept):
                    publisher = resending(session, ORDERS)
                    said: list[Outcome] = []

                    async def load() -> None:
                        for number in range(40):
                            said.extend(
                                await asyncio.gather(*(outcome(publisher, b"%d" % number) for _ in range(10)))
                            )

                    loads = [asyncio.create_task(load()) for _ in range(8)]
                    await until(lambda: len(said) > 300)
                    made.nodes["b"].kill()
                    await asyncio.gather(*loads)
                    counts = Counter(said)
                    assert set(counts) <= {Outcome.ACCEPTED, Outcome.MODIFIED}
                    assert counts[Outcome.ACCEPTED] + counts[Outcome.MODIFIED] == 3200
                    seqs = [seq for _, seq in log]
                    assert len(set(seqs)) == len(seqs), "what is in doubt is not sent again by itself"
                    assert len(seqs) >= counts[Outcome.ACCEPTED]
                rows = [row for row in await session.ledger() if row["topic"] == ORDERS]
                assert [row["balanced"] for row in rows] == [True]

    run(test)


async def slowly(event: Event) -> None:
    await asyncio.sleep(0.001)
    event.accept()


def test_subscribers_come_and_go_under_load_and_everything_is_accepted(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "bc") as made:
            log: Log = []
            async with connect(made.url("a")) as session, subscribing(made, log, ORDERS, b1=slowly):
                publisher = resending(session, ORDERS)
                said: list[Outcome] = []

                async def load() -> None:
                    said.extend([await outcome(publisher) for _ in range(100)])

                loading = asyncio.gather(*(load() for _ in range(20)))
                while not loading.done():
                    async with subscribing(made, log, ORDERS, c1=accept, a1=release) as found:
                        await asyncio.sleep(0.05)
                        await asyncio.gather(*(one.leave() for one in found.values()))
                await loading
                assert Counter(said) == {Outcome.ACCEPTED: 2000}
                assert {name for name, _ in log} >= {"b1", "c1"}

    run(test)


def test_releasing_and_leaving_in_one_turn_still_finds_the_other(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="a") as made:
            log: Log = []
            async with connect(made.url("a")) as session, subscribing(made, log, NEAR, a1=accept):
                publisher = resending(session, NEAR)
                for _ in range(30):
                    async with connect(made.url("a")) as leaver:
                        said = None
                        async with leaver.subscribe(NEAR, auto_accept=False) as events:
                            said = asyncio.create_task(outcome(publisher))
                            other = asyncio.create_task(anext(events))
                            done, _ = await asyncio.wait([said, other], return_when="FIRST_COMPLETED")
                            if other in done:
                                other.result().release()
                            other.cancel()
                        assert await said is Outcome.ACCEPTED

    run(test)


def test_events_not_sent_to_a_departing_subscriber_go_to_another(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="a") as made:
            log: Log = []
            async with (
                connect(made.url("a")) as session,
                connect(made.url("a")) as slow,
                slow.subscribe(ORDERS, auto_accept=False) as events,
            ):
                publisher = resending(session, ORDERS)
                published = [publisher.publish(b"the first")]
                await anext(events)
                published += [
                    publisher.publish(b"x" * 400_000) for _ in range(40)
                ]  # past the credit of 8 MiB

                async def waits() -> bool:
                    return int((await session.ask("anycast"))["waiting"]) > 0

                await until(waits)
                async with subscribing(made, log, ORDERS, a1=accept):
                    await until(lambda: bool(log))
                    slow.connection.drop()
                    said = await asyncio.gather(*published, return_exceptions=True)
                assert {type(one) for one in said} == {Outcome, Modified}
                assert len(log) == sum(one is Outcome.ACCEPTED for one in said)

    run(test)


def test_an_edge_uses_its_uplink_and_nothing_goes_through_it(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "ae", "bf", edges="ef") as made:
            log: Log = []
            await made.sees("e", "abf")
            async with (
                connect(made.url("e")) as session,
                subscribing(made, log, NEAR, e1=release, a1=release, f1=accept),
            ):
                assert await outcome(resending(session, NEAR)) is Outcome.ACCEPTED
                assert [name for name, _ in log] == ["e1", "a1", "f1"]

    run(test)


def test_a_publisher_waits_while_nobody_is_there(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab") as made:
            await made.sees("a", "b")
            async with connect(made.url("a")) as session:
                said = asyncio.create_task(outcome(resending(session, ORDERS)))
                plain = session.publisher(ORDERS)
                await plain.publish(b"no outcome wanted")
                await session.status()  # an outcome would have come before the answer
                assert not said.done()
                log: Log = []
                async with subscribing(made, log, ORDERS, b1=accept):
                    assert await said is Outcome.ACCEPTED
                    await until(lambda: len(log) == 2)

                async def balanced() -> bool:
                    rows = [row for row in await session.ledger() if row["topic"] == ORDERS]
                    return [(row["accepted"], row["in_flight"], row["balanced"]) for row in rows] == [
                        (2, 0, True)
                    ]

                await until(balanced)

    run(test)


def test_what_was_on_its_way_when_its_node_was_killed_is_delivered_after(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="a") as made:
            log: Log = []
            async with connect(made.url("a")) as session:
                await session.publisher(ORDERS).publish_many([b"1", b"2", b"3"])
            made.nodes["a"].kill()
            made.nodes["a"].start()
            async with subscribing(made, log, ORDERS, a1=accept):
                await until(lambda: sorted(seq for _, seq in log) == [1, 2, 3])

    run(test)


def test_a_lost_subscriber_leaves_what_it_had_in_doubt(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab") as made:
            log: Log = []
            async with connect(made.url("a")) as session:
                async with subscribing(made, log, ORDERS, b1=hold) as found:
                    said = asyncio.create_task(outcome(resending(session, ORDERS)))
                    await until(lambda: bool(log))
                    found["b1"].session.connection.drop()
                    assert await said is Outcome.MODIFIED
                await announced(made, ORDERS, set())

    run(test)


def test_a_publisher_that_was_cut_off_hears_the_outcome_when_it_is_back(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="a") as made:
            held: list[Event] = []
            log: Log = []
            async with connect(made.url("a")) as session, subscribing(made, log, ORDERS, a1=held.append):
                publisher = resending(session, ORDERS)
                first = asyncio.create_task(outcome(publisher))
                await until(lambda: len(held) == 1)
                second = asyncio.create_task(outcome(publisher))
                await until(lambda: len(held) == 2)
                session.connection.drop()
                await until(lambda: not session.is_connected)
                held[0].accept()  # most likely while the publisher is away
                await until(lambda: session.is_connected)
                held[1].accept()
                assert await first is await second is Outcome.ACCEPTED
                assert await outcome(session.publisher("plain/topic", outcome=True)) is Outcome.ACCEPTED

    run(test)


def test_a_subscriber_that_was_cut_off_takes_part_again(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="a") as made:
            log: Log = []
            async with (
                connect(made.url("a")) as session,
                subscribing(made, log, NEAR, a1=accept, a2=accept) as found,
            ):
                publisher = resending(session, NEAR)

                async def paths() -> set[str]:
                    return {row["path"] for row in (await session.ask("anycast"))["paths"]}

                before = await paths()
                found["a1"].session.connection.drop()

                async def is_back() -> bool:
                    now = await paths()
                    return len(now) == 2 and now != before

                await until(is_back)
                assert [await outcome(publisher) for _ in range(4)] == [Outcome.ACCEPTED] * 4
                assert Counter(name for name, _ in log) == {"a1": 2, "a2": 2}

    run(test)

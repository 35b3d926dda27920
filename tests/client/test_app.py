"""Handlers of events and requests: retries, dead letters, concurrency, and an end that leaves nothing half done."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import reknit
from tests.client.node_thread import run

pytestmark = pytest.mark.real


class Order(msgspec.Struct):
    id: int


@asynccontextmanager
async def running(service: reknit.App) -> AsyncIterator[reknit.Session]:
    """The handlers run until the end of the block."""
    ready = asyncio.Event()
    task = asyncio.create_task(service.serve_until_stopped(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    assert service.session is not None
    try:
        yield service.session
    finally:
        service.stop()
        await task


async def ends(session: reknit.Session) -> tuple[int, int]:
    """How many events were accepted and dead-lettered, once none is in flight."""
    while True:
        rows = await session.ledger("jobs/**")
        if rows and not any(row["in_flight"] for row in rows):
            return sum(row["accepted"] for row in rows), sum(row["dead_lettered"] for row in rows)
        await asyncio.sleep(0.02)


def test_events_are_handled_typed_and_accepted(url: str) -> None:
    async def program() -> None:
        service, got = reknit.App(url, name="billing"), []

        @service.on("jobs/**", codec=Order)
        async def book(event: reknit.TypedEvent[Order]) -> None:
            got.append(event.payload.id)

        async with running(service) as session:
            for number in range(3):
                await session.publish("jobs/a", Order(number), codec=Order)
            assert await ends(session) == (3, 0)
        assert got == [0, 1, 2]

    run(program())


def test_a_handler_that_fails_is_retried_and_then_a_dead_letter(url: str) -> None:
    async def program() -> None:
        service, tried = reknit.App(url, name="billing"), []

        @service.on("jobs/**", retries=2, backoff_s_min=0.0, backoff_s_max=0.0)
        def book(event: reknit.Event) -> None:  # a plain function runs in a thread
            assert threading.current_thread() is not threading.main_thread()
            tried.append((event.payload, event.attempt))
            if event.payload == b"bad":
                raise ValueError("no such customer")
            if event.payload == b"later" and event.attempt == 1:
                raise reknit.Retry(0.01)
            if event.payload == b"never":
                raise reknit.Reject("INVALID_ARGUMENT", "no order")

        async with running(service) as session:
            await session.publish_many("jobs/a", [b"bad", b"later", b"never"])
            assert await ends(session) == (1, 2)
            letters = await session.ask("dead_letters")
        told = {(bytes(one["payload"]), one["code"], one["text"]) for _, one in letters["letters"]}
        assert told == {(b"bad", 10, "ValueError: no such customer"), (b"never", 3, "no order")}
        assert sorted(tried) == [
            (b"bad", 1),
            (b"bad", 2),
            (b"bad", 3),
            (b"later", 1),
            (b"later", 2),
            (b"never", 1),
        ]

    run(program())


def test_so_many_are_handled_at_a_time(url: str) -> None:
    async def program() -> None:
        service, now, most = reknit.App(url, name="billing"), 0, 0
        full = asyncio.Event()

        @service.on("jobs/**", concurrency=3)
        async def book(event: reknit.Event) -> None:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            if now == 3:
                full.set()
            await full.wait()
            now -= 1

        async with running(service) as session:
            await session.publish_many("jobs/a", [b"x"] * 9)
            assert await ends(session) == (9, 0)
        assert most == 3

    run(program())


def test_stopping_lets_handlers_end_and_gives_the_rest_back(url: str) -> None:
    async def program() -> None:
        began, finish, ended = asyncio.Event(), asyncio.Event(), []
        service = reknit.App(url, name="billing")

        @service.on("jobs/**")
        async def book(event: reknit.Event) -> None:
            began.set()
            await finish.wait()
            ended.append(event.seq)

        ready = asyncio.Event()
        task = asyncio.create_task(service.serve_until_stopped(ready.set))
        await ready.wait()
        async with reknit.connect(url) as session:
            await session.publish_many("jobs/a", [b"1", b"2", b"3"])
            await began.wait()
            service.stop()
            finish.set()
            await task
            assert ended == [1], "the one that ran ended, and no other began"
            again: list[int] = []
            other = reknit.App(url, name="billing")

            @other.on("jobs/**", queue="billing.book")
            async def rest(event: reknit.Event) -> None:
                again.append(event.seq)

            async with running(other):
                assert await ends(session) == (3, 0)
        assert again == [2, 3]

    run(program())


def test_what_does_not_end_in_time_is_redelivered(url: str) -> None:
    async def program() -> None:
        service, tried = reknit.App(url, name="billing", grace_s=0.05), []
        began = asyncio.Event()

        @service.on("jobs/**", backoff_s_min=0.0, backoff_s_max=0.0)
        async def book(event: reknit.Event) -> None:
            tried.append(event.attempt)
            began.set()
            if event.attempt == 1:
                await asyncio.sleep(3600)

        async with running(service) as session:
            await session.publish("jobs/a", b"1")
            await began.wait()
        async with running(service) as session:
            assert await ends(session) == (1, 0)
        assert tried == [1, 2]

    run(program())


def test_requests_have_names(url: str) -> None:
    async def program() -> None:
        service = reknit.App(url, name="calc")

        @service.serve("calc.add")
        async def add(request: reknit.Request) -> bytes:
            return b"%d" % sum(map(int, request.payload.split()))

        async with running(service), reknit.connect(url) as session:
            assert (await session.request("calc.add", "20 22", ttl_ms=60_000)).payload == b"42"
            with pytest.raises(reknit.RequestFailed, match="UNAVAILABLE"):
                await session.request("calc.sub", "1 1", ttl_ms=50)

    run(program())


def test_mistakes_are_said_at_once() -> None:
    service = reknit.App(name="billing")
    for keywords in ({"retries": -1}, {"concurrency": 0}, {"concurrency": True}):
        with pytest.raises(reknit.LocalError, match="it must be a whole number"):
            service.on("jobs/**", **keywords)
    with pytest.raises(reknit.InvalidTopic):
        service.on("jobs//a")
    with pytest.raises(reknit.LocalError, match="needs a name"):
        reknit.App(name="")
    with pytest.raises(reknit.LocalError, match="has no handler"):
        service.run()
    service.on("a", queue="q")(print)
    with pytest.raises(reknit.LocalError, match="has a handler already"):
        service.on("b", queue="q")(print)


PROGRAM = """
import sys, reknit
service = reknit.App(sys.argv[1], name="billing")

@service.on("jobs/**", history=True)
async def book(event):
    print("booked", event.payload.decode(), flush=True)

service.run()
print("ended", flush=True)
"""


def test_sigterm_ends_a_program_with_0(url: str, tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text(PROGRAM)
    with reknit.connect_sync(url) as session:
        session.publish("jobs/a", b"7")
    command = [sys.executable, str(tmp_path / "billing.py"), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "booked 7\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "ended\n"
    assert process.returncode == 0

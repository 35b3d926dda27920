"""Streams over real nodes that are linked: depth first, cut through, and given up where they can't go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reknit.client.session import Session, connect
from reknit.client.streams import OutgoingStream
from reknit.errors import Aborted, Modified, Released
from reknit.event import Event
from reknit.outcome import Outcome
from reknit.processes.process import ending
from tests.node.node_processes import ORDERS, Fabric, announced, fabric, run, until
from tests.node.streams import test_streams
from tests.node.streams.test_streams import read_all, release, taking

PIECE = bytes(range(256)) * 256
send = partial(test_streams.send, piece=PIECE)
Reads = Callable[[Event], Awaitable[None]]


async def _read(session: Session, read: Reads, opened: asyncio.Event) -> None:
    async with session.subscribe(ORDERS, auto_accept=False, streams=True) as events:
        opened.set()
        async for event in events:
            await read(event)


@asynccontextmanager
async def reading(made: Fabric, **reads: Reads) -> AsyncIterator[None]:
    """Readers a1, b1 …; each on the node that its name begins with. All nodes have heard of them."""
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for name, read in reads.items():
            session = await stack.enter_async_context(connect(made.url(name[0]), wait_s=60))
            opened = asyncio.Event()
            tasks.append(asyncio.create_task(_read(session, read, opened)))
            await opened.wait()
        await announced(made, ORDERS, {name[0] for name in reads})
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def is_idle(made: Fabric) -> bool:
    """Whether no node that runs has anything of a stream."""
    for node in made.nodes.values():
        if node.is_running:
            async with connect(node.url, wait_s=60) as session:
                status: dict[str, Any] = await session.ask("anycast")
            if status["records"] or any(status["streams"].values()):
                return False
    return True


def test_a_line_is_searched_to_its_end_and_the_stream_arrives_whole(tmp_path: Path) -> None:
    async def test() -> None:
        got: list[bytes] = []

        async def release_midway(event: Event) -> None:
            async for _ in event.pieces():
                break
            event.release()

        reads = {"a1": release_midway, "b1": release_midway, "c1": taking(got)}
        with fabric(tmp_path, "ab", "bc") as made:
            async with reading(made, **reads), connect(made.url("a")) as session:
                out = await send(session.publisher(ORDERS, resend_released=True), 80)
                assert out.outcome is Outcome.ACCEPTED
                assert got == [PIECE * 80]
                await until(lambda: is_idle(made))
            async with reading(made, a1=release, c1=taking(got)), connect(made.url("b")) as session:
                await send(session.publisher(ORDERS, resend_released=True), 3)
                assert got[1:] == [PIECE * 3], "back from one side to the other"
            async with reading(made, a1=release, b1=release, c1=release), connect(made.url("a")) as session:
                with pytest.raises(Released) as told:
                    await send(session.publisher(ORDERS, resend_released=True), 3)
                assert told.value.attempts == 3
                await until(lambda: is_idle(made))

    run(test)


def test_a_node_process_grows_by_no_more_than_its_cap_and_windows(tmp_path: Path) -> None:
    """64 MiB that nobody pins, over two nodes that may hold 1 MiB of it each: what they use of memory is counted."""

    async def test() -> None:
        read = 0

        async def take(event: Event) -> None:
            nonlocal read
            async for piece in event.pieces():
                read += len(piece)
            event.accept()

        async def used() -> list[int]:
            return [(await session.status())["rss_bytes"] for session in sessions]

        made = Fabric(tmp_path, ["ab"])
        for node in made.nodes.values():
            node.command += ["--set", "anycast.streams_held_bytes_max=1 MiB"]
        with ending(*made.nodes.values()):
            for node in made.nodes.values():
                node.start()
            async with (
                reading(made, b1=take),
                connect(made.url("a")) as at_a,
                connect(made.url("b")) as at_b,
            ):
                sessions = (at_a, at_b)
                publisher = at_a.publisher(ORDERS, resend_released=True)
                await send(publisher, 64)
                before = await used()
                await send(publisher, 1024)
                assert read == (64 + 1024) * len(PIECE)
                grown = [now - then for now, then in zip(await used(), before, strict=True)]
                assert max(grown) < 16 << 20, grown

    run(test)


def test_pieces_cross_nodes_before_the_last_one_is_sent_and_an_abort_does_too(tmp_path: Path) -> None:
    async def test() -> None:
        first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        aborted: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def read(event: Event) -> None:
            try:
                async for piece in event.pieces():
                    if not first.done():
                        first.set_result(piece)
            except Aborted as error:
                aborted.set_result(error.text)

        with fabric(tmp_path, "ab", "bc") as made:
            async with reading(made, c1=read), connect(made.url("a")) as session:

                async def meanwhile(out: OutgoingStream) -> None:
                    assert await first == PIECE
                    raise ZeroDivisionError

                with pytest.raises(ZeroDivisionError):
                    await send(session.publisher(ORDERS, resend_released=True), 2, meanwhile)
                assert await aborted == "its publisher gave it up"
                await until(lambda: is_idle(made))

    run(test)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_node_that_is_killed_midway_leaves_it_in_doubt_and_nothing_behind(
    tmp_path: Path, victim: str
) -> None:
    async def test() -> None:
        at_it = asyncio.Event()
        aborted: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def read(event: Event) -> None:
            at_it.set()
            try:
                await read_all(event)
            except Aborted as error:
                aborted.set_result(error.text)

        with fabric(tmp_path, "ab", "bc") as made:
            async with reading(made, c1=read), connect(made.url("a")) as session:

                async def meanwhile(out: OutgoingStream) -> None:
                    await at_it.wait()
                    made.nodes[victim].kill()

                with pytest.raises(Modified, match="may have been processed"):
                    await send(session.publisher(ORDERS, resend_released=True), 100_000, meanwhile)
                assert await aborted == "its sender was lost before the end of the stream"
                await until(lambda: is_idle(made))

    run(test)

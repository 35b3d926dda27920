"""Stable times: nothing is said about recovery, and a publisher does not know how many subscribe."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress

import pytest

from reknit.client.session import connect
from reknit.node.node import Node
from reknit.processes.process import tied
from reknit.wire.codec import Decoder, Frames
from reknit.wire.messages import Ack, Credit, Deliver, Ping, Pong, Settle, Settled
from tests.node.fabric import CLIENT, TOPIC, client, config, fabric, numbers, run, take, until

pytestmark = pytest.mark.real

DELIVERY = {kind.__name__ for kind in (Frames, Ack, Deliver, Credit, Settle, Settled, Ping, Pong)}
"""The messages that carry and settle events, and those that keep a quiet connection alive."""


class Wire:
    """A TCP connection's both directions, passed on and counted by kind of message."""

    def __init__(self, node: Node) -> None:
        self._port = int(node.urls[0].rpartition(":")[2])
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.seen: Counter[str] = Counter()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Wire]:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for one, other in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._carry(one, other)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        with closing(writer), suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.seen.update(type(item).__name__ for item in decoder.feed(data))
                writer.write(data)


def test_on_the_wire_nothing_is_said_about_recovery_in_stable_times() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            [node] = await stack.enter_async_context(fabric())
            ways = [await stack.enter_async_context(Wire(node).listening()) for _ in range(2)]
            session, reader = [
                await stack.enter_async_context(connect(way.url, config=CLIENT)) for way in ways
            ]
            events = await stack.enter_async_context(reader.subscribe("plant/**"))
            publisher = session.publisher(TOPIC)
            await publisher.publish(b"1")
            assert await take(events, 1) == [1]
            for way in ways:
                way.seen.clear()
            for first in range(2, 10_002, 100):
                await publisher.publish_many(numbers(first, first + 100))
            assert await take(events, 10_000) == list(range(2, 10_002))
            for way in ways:
                assert way.seen["Frames"] > 0
                assert set(way.seen) <= DELIVERY
            assert ways[0].seen.keys() <= {"Frames", "Ack", "Ping", "Pong"}, "a publisher hears of nobody"

    run(test)


PUBLISHER = """
import asyncio, gc, sys
from reknit.client.session import connect

def resident_bytes():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096

async def main():
    async with connect(sys.argv[1]) as session:
        publisher = session.publisher("plant/temp", history=1_000)
        for _ in range(40):
            await publisher.publish_many([b"x" * 100] * 50)
        print(resident_bytes(), flush=True)

asyncio.run(main())
"""


async def publishers_memory(subscribers: int) -> int:
    """The memory of a process that published 2,000 events to so many subscribers, in bytes."""
    got = 0

    async def count(node: Node) -> None:
        nonlocal got
        async with client(node) as reader, AsyncExitStack() as stack:
            all_events = [
                await stack.enter_async_context(reader.subscribe(TOPIC)) for _ in range(subscribers)
            ]
            is_ready.set()
            for events in all_events:
                async for batch in events.batches():
                    got += batch.count
                    if batch.stop > 2_000:
                        break

    is_ready = asyncio.Event()
    async with fabric(config()) as [node], asyncio.TaskGroup() as tasks:
        tasks.create_task(count(node))
        await is_ready.wait()
        program = await asyncio.create_subprocess_exec(
            *tied([sys.executable, "-c", PUBLISHER, node.urls[0]]), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await program.communicate()
        await until(lambda: got == 2_000 * subscribers)
    return int(out)


@pytest.mark.slow
def test_a_publishers_process_needs_the_same_memory_for_one_subscriber_and_for_a_thousand() -> None:
    async def test() -> None:
        one, thousand = [await publishers_memory(count) for count in (1, 1_000)]
        assert thousand - one < 1_000 * 1_024, f"{one:,} bytes for one, {thousand:,} for a thousand"

    run(test)

"""A client that offered to be a cache answers wrongly: it is asked a few times, the loss is told, and the rest flows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reknit.batch import Batch
from reknit.fields import SeqRanges
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.wire.codec import Decoder, encode
from reknit.wire.messages import VERSION, Hello, Ping, Pong, Welcome
from reknit.wire.recovery import Offer, Recover, Recovered
from tests.node.fabric import SOURCE, TOPIC, Told, client, config, fabric, made, numbers, run, take

pytestmark = pytest.mark.real

Lie = Callable[[Recover], bytes]
ASKED_MAX = 50
"""One that answered nothing was asked 100,000 times in half a minute."""


def answered(asked: Recover, covered: SeqRanges, *batches: Batch, size: int = -1) -> bytes:
    data = b"".join(bytes(batch.data) for batch in batches)
    return encode(Recovered(asked.id, len(data) if size < 0 else size, covered)) + data


def built(source: bytes, topic: str, first: int, count: int) -> Batch:
    return Batch.build(source, topic, first, [b"-1"] * count, 1)


LIES: dict[str, Lie] = {
    "nothing": lambda asked: answered(asked, []),
    "empty ranges": lambda asked: answered(asked, [(1, 1), (9, 9)]),
    "everything": lambda asked: answered(asked, [(1, 1 << 62)]),
    "other events": lambda asked: answered(asked, [(1 << 40, 1 << 41)]),
    "100,000 ranges": lambda asked: answered(asked, [(seq, seq + 1) for seq in range(1, 100_000)]),
    "another topic": lambda asked: answered(asked, asked.ranges, built(SOURCE, "plant/evil", 11, 5)),
    "another source": lambda asked: answered(asked, asked.ranges, built(b"E" * 16, TOPIC, 11, 5)),
    "beyond the range": lambda asked: answered(asked, asked.ranges, built(SOURCE, TOPIC, 1_000, 5_000)),
    "a size that does not come": lambda asked: answered(asked, asked.ranges, size=1 << 40),
    "bytes that are no batch": lambda asked: answered(asked, asked.ranges, size=64) + b"\xff" * 64,
    "silence": lambda asked: b"",
}


class LyingClient:
    """Speaks the protocol of a client, offers to be a cache, and answers as it is told to."""

    def __init__(self, port: int, lie: Lie) -> None:
        self._port, self._lie = port, lie
        self.asked = 0

    async def live(self) -> None:
        """Answer until the node hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._talk(reader, writer)
        finally:
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        writer.write(encode(Hello(VERSION, "liar")))
        while data := await reader.read(1 << 16):
            for item in decoder.feed(data):
                match item:
                    case Welcome():
                        writer.write(encode(Offer("plant/**")))
                    case Ping():
                        writer.write(encode(Pong()))
                    case Recover():
                        self.asked += 1
                        writer.write(self._lie(item))
                    case _:
                        pass


@pytest.mark.parametrize("lie", LIES)
def test_a_cache_that_lies_is_asked_a_few_times_and_nobody_waits_for_it(lie: str) -> None:
    async def test() -> None:
        told = Told()
        async with (
            fabric(config(patience_s=0.2, query_s=0.1)) as [node],
            client(node) as session,
            session.subscribe(TOPIC, on_lost=told) as events,
        ):
            liar = LyingClient(int(node.urls[0].rpartition(":")[2]), LIES[lie])
            life = asyncio.create_task(liar.live())
            while not liar.asked:  # it has offered, and is asked
                for seq in (10, 31):
                    events.receive(subscribing.Delivered([made(seq, seq + 1)], 0, 1, False))
                await asyncio.sleep(0.05)
            assert await take(events, 2) == [10, 31]
            assert told.ranges == [(11, 31)]
            await session.publisher(TOPIC, cache=False).publish_many(numbers(100, 103))
            assert await take(events, 3) == [100, 101, 102]
            assert liar.asked < ASKED_MAX
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    run(test)

"""reknit's side of `python -m bench.recovery`: a node with its journal on disk, a publisher, a subscriber."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from bench.recovery_actors import KEY, WAIT_S, Actor, Meter, Result, Tally, ended, payload
from reknit.client.session import connect
from reknit.config import Config, LimitSettings, TransportSettings
from reknit.processes.process import NodeProcess
from reknit.protocol.subscribe import subscriber as subscribing

QUICK = TransportSettings(reconnect_backoff_s_min=0.01, reconnect_backoff_s_max=0.02)


def reknit_publisher(url: str, is_plain: bool, pipe: Connection) -> None:
    """A publisher. A plain one runs on asyncio's own loop."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with connect(url, config=Config(transport=QUICK), wait_s=WAIT_S) as session:
            publisher = session.publisher(KEY)
            pipe.send("up")
            while (request := await loop.run_in_executor(None, pipe.recv)) is not None:
                if request == "canary":
                    continue
                first, stop = request[:2]
                begun = time.monotonic()
                for number in range(first, stop):
                    await publisher.send(payload(number))
                if len(request) == 2:
                    await publisher.flush()
                pipe.send(begun)

    (asyncio if is_plain else uvloop).run(main())


def reknit_subscriber(url: str, history: bool, is_plain: bool, pipe: Connection) -> None:
    """A subscriber, which can lose what is delivered to it. A plain one has default limits and asyncio's own loop."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        # Events that are dropped below return no credit.
        limits = LimitSettings() if is_plain else LimitSettings(subscribe_credit_bytes=64 << 20)
        quick = Config(transport=QUICK, limits=limits)
        async with connect(url, config=quick, wait_s=WAIT_S) as session:
            pipe.send("up")
            wanted = await loop.run_in_executor(None, pipe.recv)
            begun = time.monotonic()
            async with session.subscribe(KEY, history=history) as events:
                receive, lost = events.receive, [0, False]

                def lose(message: subscribing.Input) -> None:
                    if lost[1] and isinstance(message, subscribing.Delivered):
                        lost[0] += sum(batch.count for batch in message.batches)
                    else:
                        receive(message)

                events.receive = lose  # type: ignore[method-assign]
                pipe.send("declared")
                tally = Tally()
                while wanted is not None:
                    keep, last = tally.got.append, payload(wanted)
                    async for event in events:
                        keep(event.payload)
                        if event.payload == last:
                            break
                    pipe.send((begun, time.monotonic(), *tally.look()))
                    wanted = await loop.run_in_executor(None, pipe.recv)
                    while isinstance(wanted, str):
                        lost[1] = wanted == "lose"
                        pipe.send(lost[0])
                        wanted = await loop.run_in_executor(None, pipe.recv)

    (asyncio if is_plain else uvloop).run(main())


# -- cases


class Trio:
    """A node, a publisher and a subscriber."""

    def __init__(self, folder: Path, history: bool) -> None:
        self.node = NodeProcess(folder)
        self.publisher = Actor(reknit_publisher, self.node.url, False)
        self.subscriber = Actor(reknit_subscriber, self.node.url, history, False)
        self.node.start()

    def meter(self) -> Meter:
        return Meter(self.node.pid, self.publisher.process.pid, self.subscriber.process.pid)

    def begin(self) -> None:
        """Wait until the subscriber has the first event."""
        self.subscriber.ask(1)
        self.publisher.ask((1, 2))
        self.subscriber.hear()


@contextmanager
def running(history: bool) -> Iterator[Trio]:
    with tempfile.TemporaryDirectory() as folder:
        trio = Trio(Path(folder), history)
        try:
            trio.publisher.ready()
            trio.subscriber.ready()
            yield trio
        finally:
            trio.publisher.end()
            trio.subscriber.end()
            trio.node.kill()


def late(count: int) -> Result:
    with running(history=True) as trio:
        trio.publisher.ask((1, count + 1))
        meter = trio.meter()
        trio.subscriber.ask(count)
        return ended(trio.subscriber, count, meter)


def missed(count: int) -> Result:
    with running(history=False) as trio:
        trio.begin()
        trio.subscriber.ask("lose")
        trio.publisher.ask((2, count + 2))
        while trio.subscriber.ask("lose") < count:
            time.sleep(0.01)
        trio.subscriber.ask("go on")
        meter = trio.meter()
        trio.subscriber.say(count + 2)
        begun = trio.publisher.ask((count + 2, count + 3))
        return ended(trio.subscriber, count + 2, meter, begun)


def outage(count: int) -> Result:
    """Timed from the moment at which the node listens again: only the clients know when they have reconnected."""
    with running(history=False) as trio:
        trio.begin()
        trio.node.kill()
        time.sleep(0.1)
        trio.publisher.ask((2, count + 2, "don't wait"))
        trio.subscriber.say(count + 2)
        trio.node.start()
        begun = time.monotonic()
        meter = trio.meter()
        trio.publisher.say((count + 2, count + 3))
        return ended(trio.subscriber, count + 2, meter, begun)

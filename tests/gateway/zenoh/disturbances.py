"""Events between Zenoh and reknit through cuts of the link and kills of the gateway: each comes once, in order.

python -m tests.gateway.zenoh.disturbances --events 40000 --cut-s 5 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import zenoh

from reknit.client.session import connect
from reknit.gateway.zenoh.threads import call
from reknit.processes.process import NodeProcess, free_port
from tests.gateway.zenoh.network import KEY, Peer, Proxy
from tests.node.fabric import CLIENT, Told, until

SLICE = 50
"""How many events are published at once."""


@dataclass(frozen=True)
class Course:
    """What happens to how many events: in each round the link is cut, and then the gateway is killed."""

    events: int = 1_000
    rounds: int = 1
    cut_s: float = 0.05
    rate: float = 0.0
    """Events a second; 0: as fast as possible."""


@dataclass
class Outcome:
    """What arrived."""

    numbers: list[int] = field(default_factory=list)
    lost: list[Any] = field(default_factory=list)

    def problem(self, events: int) -> str:
        """Empty if every event arrived once, in order."""
        counts = Counter(self.numbers)
        missing = events - len(counts)
        twice = sum(counts.values()) - len(counts)
        is_ordered = all(one < other for one, other in pairwise(self.numbers))
        good = not missing and not twice and is_ordered and not self.lost
        return "" if good else f"{missing} missing, {twice} twice, {is_ordered=}, told as lost: {self.lost}"


@asynccontextmanager
async def gateway_process(folder: Path) -> AsyncIterator[tuple[NodeProcess, Proxy, Peer]]:
    """A Zenoh peer, and a node that joins it through a proxy and can be killed."""
    port = free_port()
    async with Proxy(port) as proxy, Peer([f"tcp/127.0.0.1:{port}"], []) as peer:
        node = NodeProcess(folder, "--zenoh-connect", f"tcp/127.0.0.1:{proxy.port}")
        await asyncio.to_thread(node.start)
        try:
            yield node, proxy, peer
        finally:
            await asyncio.to_thread(node.kill)


async def _publish(
    course: Course, put: Callable[[int, int], Awaitable[object]], node: NodeProcess, proxy: Proxy
) -> None:
    """Publish everything, with a cut and a kill in each round."""
    began, due = time.monotonic(), _schedule(course)
    disturbing: asyncio.Task[None] | None = None
    for first in range(0, course.events, SLICE):
        if due and first >= due[0][0]:
            if disturbing is not None:
                await disturbing
            disturbing = asyncio.create_task(_disturb(due.pop(0)[1], course, node, proxy))
        await put(first, min(first + SLICE, course.events))
        if course.rate:
            await asyncio.sleep(max(0.0, began + first / course.rate - time.monotonic()))
    if disturbing is not None:
        await disturbing


def _schedule(course: Course) -> list[tuple[int, str]]:
    steps = course.rounds * 2
    kinds = ("cut", "kill")
    return [(course.events * (step + 1) // (steps + 1), kinds[step % 2]) for step in range(steps)]


async def _disturb(how: str, course: Course, node: NodeProcess, proxy: Proxy) -> None:
    if how == "cut":
        await proxy.cut()
        await asyncio.sleep(course.cut_s)
        await proxy.heal()
    else:
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)


async def into_reknit(course: Course, folder: Path) -> Outcome:
    """An advanced Zenoh publisher without detection, with heartbeats, and a reknit subscriber."""
    got, lost = Outcome(), Told()
    async with gateway_process(folder) as (node, proxy, peer):
        publisher = await peer.advanced(course.events, is_detected=False, heartbeat=0.2)
        await peer.sees()

        def put_all(first: int, stop: int) -> None:
            for number in range(first, stop):
                publisher.put(b"%d" % number)

        async with connect(node.url, config=CLIENT, wait_s=60) as session:
            publishing = asyncio.create_task(
                _publish(course, lambda first, stop: call(put_all, first, stop), node, proxy)
            )
            async with session.subscribe(KEY, name="all", history=True, on_lost=lost) as events:
                async for event in events:
                    got.numbers.append(int(event.payload))
                    if got.numbers[-1] == course.events - 1:
                        break
            await publishing
    got.lost = lost.ranges
    return got


async def into_zenoh(course: Course, folder: Path) -> Outcome:
    """A reknit publisher, and an advanced Zenoh subscriber with recovery."""
    got = Outcome()
    async with gateway_process(folder) as (node, proxy, peer):
        await peer.advanced_subscriber(
            lambda sample: got.numbers.append(int(sample.payload.to_bytes())),
            lambda miss: got.lost.append(miss.nb),
            recovery=zenoh.ext.RecoveryConfig(heartbeat=True),  # type: ignore[call-arg]
        )
        async with connect(node.url, config=CLIENT, wait_s=60) as session:
            await peer.is_reached_by(session)
            publisher = session.publisher(KEY)

            async def put(first: int, stop: int) -> None:
                await publisher.publish_many([b"%d" % number for number in range(first, stop)])

            await _publish(course, put, node, proxy)
            await until(lambda: len(set(got.numbers)) >= course.events or got.lost)
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cut-s", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=4_000.0)
    found = parser.parse_args()
    course = Course(found.events, found.rounds, found.cut_s, found.rate)
    for way in (into_reknit, into_zenoh):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(way(course, Path(folder)))
        problem = outcome.problem(course.events) or "each once, in order"
        print(f"{way.__name__}: {len(outcome.numbers)} events, {time.monotonic() - began:.0f} s: {problem}")


if __name__ == "__main__":
    main()

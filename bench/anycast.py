"""Anycast: how soon a released event reaches the next subscriber, and how many outcomes per second are returned.

python -m bench.anycast            through one node, events of 100 bytes

The processes are a node, a publisher, and for the rate a subscriber. The figures of skrouterd for the same were taken on
a machine of this kind (0.50 ms from release to the next arrival; 11,800 events per second between two of proton's
Python clients).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.session import Session, connect
from reknit.outcome import Outcome
from reknit.processes.process import NodeProcess, ending

TOPIC = "orders/new"
RULE = '[[topics]]\npattern = "orders/**"\ndistribution = "balanced"\ndurability = "memory"\n'
PAYLOAD = b"x" * 100
SKROUTERD_RELEASE_MS, PROTON_PER_S = 0.50, 11_800
GOAL_RELEASE_MS, GOAL_TIMES = 0.5, 10
ROUNDS, WARM_UP = 600, 100
CALL_EVENTS, CALLS_OPEN = 500, 20


async def release_to_next(url: str) -> list[float]:
    """Milliseconds from a subscriber's release to the delivery to the other one, both in this process."""
    released: list[float] = [0.0]
    took_ms: list[float] = []

    async def take(session: Session, ready: asyncio.Event) -> None:
        async with session.subscribe(TOPIC, auto_accept=False) as events:
            ready.set()
            async for event in events:
                if not released[0]:
                    released[0] = time.perf_counter()
                    event.release()
                else:
                    took_ms.append((time.perf_counter() - released[0]) * 1000)
                    released[0] = 0.0
                    event.accept()

    async with connect(url) as one, connect(url) as two, connect(url) as session:
        readies = [asyncio.Event(), asyncio.Event()]
        takers = [
            asyncio.create_task(take(each, ready)) for each, ready in zip((one, two), readies, strict=True)
        ]
        for ready in readies:
            await ready.wait()
        publisher = sending(session)
        for _ in range(ROUNDS):
            assert await publisher.publish(PAYLOAD) is Outcome.ACCEPTED
        for taker in takers:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)
    return took_ms[WARM_UP:]


async def subscribe(url: str) -> None:
    """The subscriber's process: accepts every event until it is stopped."""
    async with connect(url) as session, session.subscribe(TOPIC, auto_accept=False) as events:
        print("ready", flush=True)
        while batches := await events.take_all():
            for batch in batches:
                assert batch.payloads()[0] == PAYLOAD
                batch.accept()


def sending(session: Session) -> OutcomePublisher:
    """A publisher whose calls return outcomes."""
    publisher = session.publisher(TOPIC, resend_released=True)
    assert isinstance(publisher, OutcomePublisher)
    return publisher


async def publish(url: str, seconds: float) -> float:
    """Events per second whose acceptance the publisher has learned."""
    payloads, accepted = [PAYLOAD] * CALL_EVENTS, 0
    async with connect(url) as session:
        publisher = sending(session)
        began, end = time.perf_counter(), time.perf_counter() + seconds

        async def keep_on() -> None:
            nonlocal accepted
            while time.perf_counter() < end:
                assert await publisher.publish_many(payloads) is Outcome.ACCEPTED
                accepted += CALL_EVENTS

        await asyncio.gather(*(keep_on() for _ in range(CALLS_OPEN)))
        return accepted / (time.perf_counter() - began)


def rate(url: str, seconds: float) -> float:
    """The publisher's rate, with a subscriber in another process."""
    command = [sys.executable, "-m", "bench.anycast", "--subscribe", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as taker:
        try:
            assert taker.stdout is not None
            assert taker.stdout.readline().strip() == "ready"
            return uvloop.run(publish(url, seconds))
        finally:
            taker.kill()


def measure(seconds: float) -> dict[str, float]:
    """Measure both figures, with a node of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.toml")
        path.write_text(RULE)
        node = NodeProcess(Path(folder), "--config", str(path), "--journal", "memory")
        with ending(node):
            node.start()
            took_ms = uvloop.run(release_to_next(node.url))
            per_s = rate(node.url, seconds)
    quantiles = statistics.quantiles(took_ms, n=100)
    return {
        "release_to_next_ms": round(statistics.median(took_ms), 3),
        "release_to_next_ms_p99": round(quantiles[98], 3),
        "accepted_per_s": round(per_s),
        "times_proton": round(per_s / PROTON_PER_S, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the rate is measured")
    parser.add_argument("--subscribe", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.subscribe:
        uvloop.run(subscribe(args.subscribe))
        return
    figures = measure(args.seconds)
    print(json.dumps(figures, indent=2))
    met = figures["release_to_next_ms"] < GOAL_RELEASE_MS, figures["times_proton"] >= GOAL_TIMES
    print(f"release → next arrival below {GOAL_RELEASE_MS} ms: {'met' if met[0] else 'missed'}")
    print(f"at least {GOAL_TIMES}x proton's clients through skrouterd: {'met' if met[1] else 'missed'}")


if __name__ == "__main__":
    main()

"""Work queues: how many events a second are processed with an outcome, and how evenly a burst is shared.

python -m bench.queues             beside Redis streams with consumer groups, if redis-server is there, and RabbitMQ
                                   through aio-pika, if rabbitmq-server is there

Each event (100 bytes) goes to one of 2 or 8 workers, each a process, which settles it. The rate counts events from the
first one that is published to the last one that is settled. reknit syncs its journal before it acknowledges; Redis
appends to a file and syncs every second. RabbitMQ has a durable classic queue and a quorum queue (`bench/rabbitmq.py`),
and gets a fifth of the events.

The burst of 1,000 events is for 8 workers that need 5 ms each. Its fairness is the coefficient of variation of the
workers' counts. Two workers of 20 ms could process 200 events in 2.0 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from bench import rabbitmq
from reknit.client.session import Session, connect
from reknit.processes.process import NodeProcess, ending, free_port

TOPIC: Final = {"balanced": "orders/new", "queue": "jobs/new"}
RULE: Final = '[[topics]]\npattern = "orders/**"\ndistribution = "balanced"\n'
QUEUE: Final = "work"
PAYLOAD: Final = b"x" * 100
CALL_EVENTS: Final = 500
AHEAD_CALLS: Final = 8
"""How many calls the publisher has under way, or Redis and RabbitMQ as many events of."""
READ_EVENTS: Final = 500
BURST: Final = 1_000
GOAL_CV, GOAL_TIMES = 0.10, 10
WAIT_S: Final = 120.0
STREAM: Final = b"work"
RABBIT_PART: Final = 5
"""RabbitMQ gets one of so many events: its rate is a fraction of the others'."""


class Measured(NamedTuple):
    """What one run of a queue measured."""

    per_s: float
    cpu_us: float
    """The CPU time of the server for each event, in microseconds: it hardly depends on what else the machine does."""

    def figures(self, name: str) -> dict[str, float]:
        """As they are printed."""
        return {f"{name}_per_s": round(self.per_s), f"{name}_cpu_us": round(self.cpu_us, 2)}


# -- reknit


def subscribed(session: Session, kind: str) -> Any:
    queue = QUEUE if kind == "queue" else ""
    return session.subscribe(TOPIC[kind], queue=queue, auto_accept=False)


async def work(url: str, kind: str) -> None:
    """A worker's process: accepts every event until it is stopped."""
    async with connect(url) as session, subscribed(session, kind) as events:
        print("ready", flush=True)
        while batches := await events.take_all():
            for batch in batches:
                assert batch.payloads()[0] == PAYLOAD
                batch.accept()


async def accepted(session: Session, kind: str) -> int:
    """How many events of the queue were accepted."""
    name = QUEUE if kind == "queue" else "anycast/orders/**"
    return sum(int(row["accepted"]) for row in await session.ask("queues") if row["queue"] == name)


async def until_accepted(session: Session, kind: str, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while await accepted(session, kind) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def publish(url: str, kind: str, events: int) -> Measured:
    """Until the last event is accepted."""
    async with connect(url) as session:
        before, cpu_s = await accepted(session, kind), (await session.status())["cpu_s"]
        began = time.perf_counter()
        publisher = session.publisher(TOPIC[kind])
        for _ in range(events // CALL_EVENTS // AHEAD_CALLS):
            await asyncio.gather(
                *(publisher.publish_many([PAYLOAD] * CALL_EVENTS) for _ in range(AHEAD_CALLS))
            )
        await until_accepted(session, kind, before + events)
        took_s, cpu_s = time.perf_counter() - began, (await session.status())["cpu_s"] - cpu_s
        return Measured(events / took_s, 1e6 * cpu_s / events)


async def share(url: str, kind: str, workers: int, events: int, takes_s: float) -> tuple[list[int], float]:
    """How many events each of these equal workers processed, and in how many seconds all of them were."""
    counts = [0] * workers
    ready = asyncio.Semaphore(0)

    async def worker(number: int) -> None:
        async with connect(url) as session, subscribed(session, kind) as mine:
            ready.release()
            async for event in mine:
                await asyncio.sleep(takes_s)
                counts[number] += 1
                event.accept()

    tasks = [asyncio.create_task(worker(number)) for number in range(workers)]
    for _ in range(workers):
        await ready.acquire()
    async with connect(url) as session:
        began = time.perf_counter()
        await session.publisher(TOPIC[kind]).publish_many([PAYLOAD] * events)
        async with asyncio.timeout(WAIT_S):
            while sum(counts) < events:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        took = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return counts, took


# -- Redis


def redis_work(port: int, name: str) -> None:
    """A worker's process on a Redis stream: reads by its group, and acknowledges each event."""
    import redis

    client = redis.Redis(host="127.0.0.1", port=port)
    print("ready", flush=True)
    while True:
        answer: Any = client.xreadgroup(QUEUE, name, {STREAM: b">"}, count=READ_EVENTS, block=1000)
        for _, entries in answer:
            client.xack(STREAM, QUEUE, *(entry for entry, _ in entries))


def redis_publish(port: int, events: int) -> Measured:
    import redis

    client = redis.Redis(host="127.0.0.1", port=port)
    group = _group(client)
    before, cpu_s, began = group["entries-read"] - group["pending"], _redis_cpu_s(client), time.perf_counter()
    for _ in range(events // CALL_EVENTS // AHEAD_CALLS):
        pipeline = client.pipeline(transaction=False)
        for _ in range(CALL_EVENTS * AHEAD_CALLS):
            pipeline.xadd(STREAM, {b"e": PAYLOAD})
        pipeline.execute()
    deadline = time.monotonic() + WAIT_S
    while (group := _group(client))["entries-read"] - group["pending"] < before + events:
        assert time.monotonic() < deadline, group
        time.sleep(0.02)
    took_s = time.perf_counter() - began
    return Measured(events / took_s, 1e6 * (_redis_cpu_s(client) - cpu_s) / events)


def _redis_cpu_s(client: Any) -> float:
    found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _group(client: Any) -> dict[str, int]:
    [found] = client.xinfo_groups(STREAM)
    return {name: int(found[name] or 0) for name in ("entries-read", "pending")}


@contextmanager
def redis_server(program: str, folder: Path) -> Iterator[int]:
    import redis

    port = free_port()
    flags = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "")
    with subprocess.Popen([program, *flags, "--appendonly", "yes"], stdout=subprocess.DEVNULL) as server:
        try:
            client = redis.Redis(host="127.0.0.1", port=port, retry_on_error=[redis.ConnectionError])
            deadline = time.monotonic() + WAIT_S
            while True:
                try:
                    client.xgroup_create(STREAM, QUEUE, mkstream=True)
                    break
                except redis.ConnectionError:
                    assert time.monotonic() < deadline, "redis-server does not start"
                    time.sleep(0.05)
            yield port
        finally:
            server.terminate()


# -- both


@contextmanager
def workers(count: int, *words: str) -> Iterator[None]:
    """So many workers, each in a process of its own."""
    command = [sys.executable, "-m", "bench.queues", "--work", *words]
    running = [
        subprocess.Popen([*command, f"worker-{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline().strip() == "ready"
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()
            if one.stdout is not None:
                one.stdout.close()


def measure_reknit(events: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.toml")
        path.write_text(RULE)
        node = NodeProcess(Path(folder), "--config", str(path))
        with ending(node):
            node.start()
            for kind in ("balanced", "queue"):
                for count in (2, 8):
                    with workers(count, node.url, kind):
                        run = uvloop.run(publish(node.url, kind, events))
                    figures |= run.figures(f"{kind}_{count}_workers")
                counts, _ = uvloop.run(share(node.url, kind, 8, BURST, 0.005))
                figures[f"{kind}_burst"] = counts
                figures[f"{kind}_cv"] = round(statistics.pstdev(counts) / statistics.mean(counts), 3)
                _, took = uvloop.run(share(node.url, kind, 2, 200, 0.02))
                figures[f"{kind}_200_events_of_20_ms_s"] = round(took, 2)
    return figures


def measure_redis(events: int) -> dict[str, Any]:
    program = shutil.which("redis-server")
    if program is None:
        return {}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, redis_server(program, Path(folder)) as port:
        for count in (2, 8):
            with workers(count, str(port), "redis"):
                run = redis_publish(port, events)
            figures |= run.figures(f"redis_{count}_workers")
    return figures


def measure_rabbitmq(events: int) -> dict[str, Any]:
    command = rabbitmq.program()
    if command is None:
        return {}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, rabbitmq.rabbitmq_server(command, Path(folder)) as url:
        for kind in rabbitmq.KINDS:
            for count in (2, 8):
                with workers(count, url, kind):
                    rate = uvloop.run(rabbitmq.publish(url, kind, PAYLOAD, events, CALL_EVENTS * AHEAD_CALLS))
                figures[f"rabbitmq_{kind}_{count}_workers_per_s"] = round(rate)
    return figures


PEERS: Final = {
    "redis": "Redis",
    "rabbitmq_classic": "RabbitMQ classic",
    "rabbitmq_quorum": "RabbitMQ quorum",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000, help="how many events the rate is of")
    parser.add_argument("--work", nargs=3, metavar=("PLACE", "KIND", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.events -= args.events % (CALL_EVENTS * AHEAD_CALLS * RABBIT_PART)
    if args.work:
        place, kind, name = args.work
        if kind == "redis":
            redis_work(int(place), name)
        elif kind in rabbitmq.KINDS:
            uvloop.run(rabbitmq.work(place, kind))
        else:
            uvloop.run(work(place, kind))
        return
    figures = measure_reknit(args.events) | measure_redis(args.events)
    figures |= measure_rabbitmq(args.events // RABBIT_PART)
    print(json.dumps(figures, indent=2))
    for kind in ("balanced", "queue"):
        met = figures[f"{kind}_cv"] < GOAL_CV
        print(f"{kind}: coefficient of variation below {GOAL_CV:.0%}: {'met' if met else 'missed'}")
        for peer, called in PEERS.items():
            _compare(figures, kind, peer, called)
    for peer, called in PEERS.items():
        if f"{peer}_2_workers_per_s" not in figures:
            print(f"{called} was not measured: its server is not installed")


def _compare(figures: dict[str, Any], kind: str, peer: str, called: str) -> None:
    for count in (2, 8):
        if (peer_per_s := figures.get(f"{peer}_{count}_workers_per_s")) is None:
            continue
        times = figures[f"{kind}_{count}_workers_per_s"] / peer_per_s
        met = "met" if times >= GOAL_TIMES else "missed"
        print(f"{kind}: {times:.1f} times {called}, {count} workers; goal {GOAL_TIMES}: {met}")
        if (peer_cpu_us := figures.get(f"{peer}_{count}_workers_cpu_us")) is not None:
            less = peer_cpu_us / figures[f"{kind}_{count}_workers_cpu_us"]
            print(f"{kind}: {called} uses {less:.1f} times as much CPU for an event")


if __name__ == "__main__":
    main()

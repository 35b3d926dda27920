"""Recovery beside Zenoh's advanced publisher and subscriber, in one run: `python -m bench.recovery`.

Three cases, publisher and subscriber in processes of their own, on loopback, events of 100 bytes, one by one to the
application on both sides:

    late joiner   so many events are held, then a subscriber comes: from its call until it has all of them
    missed        so many events are missed; the next one comes: from its publication until all are there
    outage        the node (the router) between is down while so many are published: from the moment at which it
                  listens again until all are there

Zenoh has its cache in the publisher, as deep as the case needs, and finds the gap by the next sample. reknit has its
journal on disk and syncs it. Zenoh's subscriber is made to miss by an outage of its router, ours by dropping what it is
delivered. On a busy machine look at the processor time, which is that of all processes of a case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from reknit.testing.processes import NodeProcess, free_port

PAYLOAD = bytes(92)
WAIT_S = 60.0
KEY = "bench/recovery"


def payload(number: int) -> bytes:
    return number.to_bytes(8, "little") + PAYLOAD


class Tally:
    """Counts what arrives: every number once and in order."""

    def __init__(self) -> None:
        self.next = 1
        self.wrong = 0

    def add(self, data: bytes) -> None:
        number = int.from_bytes(data[:8], "little")
        if number != self.next:
            self.wrong += 1
        self.next = number + 1


# -- Zenoh


def zenoh_session(mode: str, listen: list[int], connect: list[int]) -> Any:
    import zenoh

    config = zenoh.Config()
    settings: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": [f"tcp/127.0.0.1:{port}" for port in listen],
        "connect/endpoints": [f"tcp/127.0.0.1:{port}" for port in connect],
        "connect/timeout_ms": -1,
        "connect/retry": {"period_init_ms": 10, "period_max_ms": 20, "period_increase_factor": 1},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "timestamping/enabled": True,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def zenoh_router(port: int, pipe: Connection) -> None:
    session = zenoh_session("router", [port], [])
    pipe.send("up")
    pipe.recv()
    session.close()


def zenoh_publisher(port: int, depth: int, pipe: Connection) -> None:
    import zenoh

    session = zenoh_session("client", [], [port])
    publisher = zenoh.ext.declare_advanced_publisher(
        session,
        KEY,
        congestion_control=zenoh.CongestionControl.BLOCK,
        cache=zenoh.ext.CacheConfig(depth),
        sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=3_600.0),  # type: ignore[call-arg]
        publisher_detection=True,
    )
    serve(pipe, publisher.put, lambda: session.put("bench/canary", b"?"))


def serve(pipe: Connection, put: Callable[[bytes], object], canary: Callable[[], object]) -> None:
    """Publish on request: a range, or a canary."""
    pipe.send("up")
    while (request := pipe.recv()) is not None:
        if request == "canary":
            canary()
            continue
        first, stop = request
        begun = time.monotonic()
        for number in range(first, stop):
            put(payload(number))
        pipe.send(begun)


def zenoh_subscriber(port: int, history: bool, pipe: Connection) -> None:
    import zenoh

    session = zenoh_session("client", [], [port])
    canaries: list[object] = []
    watcher = session.declare_subscriber("bench/canary", canaries.append)
    pipe.send("up")
    wanted = pipe.recv()
    begun = time.monotonic()
    options: dict[str, Any] = {"recovery": zenoh.ext.RecoveryConfig(heartbeat=True)}  # type: ignore[call-arg]
    if history:
        options["history"] = zenoh.ext.HistoryConfig(detect_late_publishers=True)
    samples = zenoh.ext.declare_advanced_subscriber(
        session, KEY, zenoh.handlers.FifoChannel(10_000), **options
    )
    pipe.send("declared")
    tally = Tally()
    while wanted is not None:
        for sample in samples:
            tally.add(sample.payload.to_bytes())
            if tally.next > wanted:
                break
        pipe.send((begun, time.monotonic(), tally.next - 1, tally.wrong))
        wanted = pipe.recv()
        if wanted == "canary":
            canaries.clear()
            while not canaries:
                time.sleep(0.002)
            pipe.send("seen")
            wanted = pipe.recv()
    watcher.undeclare()


# -- reknit


def reknit_publisher(url: str, depth: int, pipe: Connection) -> None:
    from reknit.client.session import connect
    from reknit.config import Config, TransportSettings

    async def main() -> None:
        loop = asyncio.get_running_loop()
        quick = Config(
            transport=TransportSettings(reconnect_backoff_s_min=0.01, reconnect_backoff_s_max=0.02)
        )
        async with connect(url, config=quick) as session:
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

    uvloop.run(main())


def reknit_subscriber(url: str, history: bool, pipe: Connection) -> None:
    from reknit.client.session import connect
    from reknit.config import Config, LimitSettings, TransportSettings
    from reknit.protocol import subscriber as subscribing

    async def main() -> None:
        loop = asyncio.get_running_loop()
        quick = Config(
            transport=TransportSettings(reconnect_backoff_s_min=0.01, reconnect_backoff_s_max=0.02),
            limits=LimitSettings(subscribe_credit_bytes=64 << 20),  # what is lost below gives no credit back
        )
        async with connect(url, config=quick) as session:
            pipe.send("up")
            wanted = await loop.run_in_executor(None, pipe.recv)
            begun = time.monotonic()
            async with session.subscribe(KEY, history=history) as events:
                receive, lost = events.receive, [0, False]

                def lose(message: subscribing.Input, peer: Any = "node") -> None:
                    if lost[1] and isinstance(message, subscribing.Delivered):
                        lost[0] += sum(batch.count for batch in message.batches)
                    else:
                        receive(message, peer)

                events.receive = lose  # type: ignore[method-assign]
                pipe.send("declared")
                tally = Tally()
                while wanted is not None:
                    async for event in events:
                        tally.add(event.payload)
                        if tally.next > wanted:
                            break
                    pipe.send((begun, time.monotonic(), tally.next - 1, tally.wrong))
                    wanted = await loop.run_in_executor(None, pipe.recv)
                    while isinstance(wanted, str):
                        lost[1] = wanted == "lose"
                        pipe.send(lost[0])
                        wanted = await loop.run_in_executor(None, pipe.recv)

    uvloop.run(main())


# -- cases


class Actor:
    """One process and the way to it."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=target, args=(*args, other), daemon=True)
        self.process.start()
        other.close()
        self.hear()

    def say(self, word: object) -> None:
        self.pipe.send(word)

    def hear(self) -> Any:
        if not self.pipe.poll(WAIT_S):
            raise TimeoutError(f"{self.process.name} says nothing")
        return self.pipe.recv()

    def ask(self, word: object) -> Any:
        self.say(word)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.join()


Result = tuple[float, int, int, float]
"""Seconds, events that are missing, events out of order or twice, seconds of processor time of all processes."""


class Meter:
    """Processor time of some processes, all threads: what a case costs, however busy the machine is otherwise."""

    def __init__(self, *pids: int | None) -> None:
        self._pids = pids
        self._before = self._now()

    def _now(self) -> float:
        tasks = [task for pid in self._pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def spent_s(self) -> float:
        return self._now() - self._before


def zenoh_late(count: int) -> Result:
    port = free_port()
    router = Actor(zenoh_router, port)
    publisher, subscriber = Actor(zenoh_publisher, port, count), Actor(zenoh_subscriber, port, True)
    try:
        publisher.ask((1, count + 1))
        time.sleep(0.3)
        meter = Meter(*(actor.process.pid for actor in (router, publisher, subscriber)))
        subscriber.ask(count)
        begun, done, last, wrong = subscriber.hear()
        return done - begun, count - last, wrong, meter.spent_s()
    finally:
        for actor in (publisher, subscriber, router):
            actor.end()


def zenoh_missed(count: int) -> Result:
    return zenoh_outage(count, is_settled=True)


def zenoh_outage(count: int, is_settled: bool = False) -> Result:
    """From the router's return on; or, when everyone is connected again, from the next sample on."""
    port = free_port()
    router = Actor(zenoh_router, port)
    publisher, subscriber = Actor(zenoh_publisher, port, count + 10), Actor(zenoh_subscriber, port, False)
    try:
        subscriber.ask(1)
        time.sleep(0.3)
        publisher.ask((1, 2))
        subscriber.hear()
        router.end()
        time.sleep(0.2)
        publisher.ask((2, count + 2))
        router = Actor(zenoh_router, port)
        returned = time.monotonic()
        subscriber.say("canary")
        while not subscriber.pipe.poll(0.005):
            publisher.say("canary")
        subscriber.hear()
        if is_settled:
            time.sleep(0.2)
        meter = Meter(*(actor.process.pid for actor in (router, publisher, subscriber)))
        subscriber.say(count + 2)
        begun = publisher.ask((count + 2, count + 3))
        begun = begun if is_settled else returned
        try:
            _, done, last, wrong = subscriber.hear()
        except TimeoutError:
            return float("nan"), count, 0, float("nan")
        return done - begun, count + 2 - last, wrong, meter.spent_s()
    finally:
        for actor in (publisher, subscriber, router):
            actor.end()


def reknit_late(count: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess(Path(folder))
        node.start()
        publisher, subscriber = (
            Actor(reknit_publisher, node.url, 0),
            Actor(reknit_subscriber, node.url, True),
        )
        try:
            publisher.ask((1, count + 1))
            meter = Meter(node.pid, publisher.process.pid, subscriber.process.pid)
            subscriber.ask(count)
            begun, done, last, wrong = subscriber.hear()
            return done - begun, count - last, wrong, meter.spent_s()
        finally:
            publisher.end()
            subscriber.end()
            node.kill()


def reknit_missed(count: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess(Path(folder))
        node.start()
        publisher, subscriber = (
            Actor(reknit_publisher, node.url, 0),
            Actor(reknit_subscriber, node.url, False),
        )
        try:
            subscriber.ask(1)
            publisher.ask((1, 2))
            subscriber.hear()
            subscriber.ask("lose")
            publisher.ask((2, count + 2))
            while subscriber.ask("lose") < count:
                time.sleep(0.01)
            subscriber.ask("go on")
            meter = Meter(node.pid, publisher.process.pid, subscriber.process.pid)
            subscriber.say(count + 2)
            begun = publisher.ask((count + 2, count + 3))
            _, done, last, wrong = subscriber.hear()
            return done - begun, count + 2 - last, wrong, meter.spent_s()
        finally:
            publisher.end()
            subscriber.end()
            node.kill()


def reknit_outage(count: int) -> Result:
    """From the moment at which the node listens again, as nobody but its clients knows when they are back."""
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess(Path(folder))
        node.start()
        publisher, subscriber = (
            Actor(reknit_publisher, node.url, 0),
            Actor(reknit_subscriber, node.url, False),
        )
        try:
            subscriber.ask(1)
            publisher.ask((1, 2))
            subscriber.hear()
            node.kill()
            time.sleep(0.1)
            publisher.ask((2, count + 2, "don't wait"))
            subscriber.say(count + 2)
            node.start()
            begun = time.monotonic()
            meter = Meter(node.pid, publisher.process.pid, subscriber.process.pid)
            publisher.say((count + 2, count + 3))
            _, done, last, wrong = subscriber.hear()
            return done - begun, count + 2 - last, wrong, meter.spent_s()
        finally:
            publisher.end()
            subscriber.end()
            node.kill()


CASES: list[tuple[str, int, str, Callable[[int], Result]]] = [
    ("late joiner", 100_000, "zenoh advanced", zenoh_late),
    ("late joiner", 100_000, "reknit", reknit_late),
    ("missed", 10_000, "zenoh advanced", zenoh_missed),
    ("missed", 10_000, "reknit", reknit_missed),
    ("missed", 100_000, "zenoh advanced", zenoh_missed),
    ("missed", 100_000, "reknit", reknit_missed),
    ("outage", 100_000, "zenoh advanced", zenoh_outage),
    ("outage", 100_000, "reknit", reknit_outage),
]


def measure(rounds: int) -> list[dict[str, Any]]:
    """All cases in turn, so many times."""
    results: dict[tuple[str, int, str], list[Result]] = {}
    for number in range(rounds):
        for name, count, peer, case in CASES:
            results.setdefault((name, count, peer), []).append(case(count))
            print(f"round {number + 1}: {name} {count:,} {peer}", file=sys.stderr)
    rows = []
    for (name, count, peer), found in results.items():
        seconds = [one[0] for one in found]
        rows.append(
            {
                "case": name,
                "events": count,
                "peer": peer,
                "median_s": statistics.median(seconds),
                "best_s": min(seconds),
                "cpu_s": statistics.median(one[3] for one in found),
                "all_s": seconds,
                "missing": max(one[1] for one in found),
                "wrong": max(one[2] for one in found),
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    """A table, each with its ratio to Zenoh's."""
    base = {(row["case"], row["events"]): row for row in rows if row["peer"] == "zenoh advanced"}
    lines = [
        "| case | events | peer | median | ahead | best | ahead | processor | ahead | missing | out of order |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        other = base[row["case"], row["events"]]
        times = [
            text
            for key in ("median_s", "best_s", "cpu_s")
            for text in (f"{row[key] * 1e3:.1f} ms", f"{other[key] / row[key]:.1f} x")
        ]
        cells = (row["case"], f"{row['events']:,}", row["peer"], *times, row["missing"], row["wrong"])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is run")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    rows = measure(options.rounds)
    print(show(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Zenoh's side of `python -m bench.recovery`: a router, an advanced publisher, an advanced subscriber."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from bench.recovery_actors import KEY, Actor, Meter, Result, Tally, ended, payload
from reknit.processes.process import free_port


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
        first, stop = request[:2]
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
        keep, last = tally.got.append, payload(wanted)
        for sample in samples:
            data = sample.payload.to_bytes()
            keep(data)
            if data == last:
                break
        pipe.send((begun, time.monotonic(), *tally.look()))
        wanted = pipe.recv()
        if wanted == "canary":
            canaries.clear()
            while not canaries:
                time.sleep(0.002)
            pipe.send("seen")
            wanted = pipe.recv()
    watcher.undeclare()


# -- cases


class Trio:
    """A router, a publisher and a subscriber."""

    def __init__(self, depth: int, history: bool) -> None:
        self.port = free_port()
        self.router = Actor(zenoh_router, self.port)
        self.publisher = Actor(zenoh_publisher, self.port, depth)
        self.subscriber = Actor(zenoh_subscriber, self.port, history)

    @property
    def actors(self) -> tuple[Actor, ...]:
        return self.router, self.publisher, self.subscriber

    def meter(self) -> Meter:
        return Meter(*(one.process.pid for one in self.actors))


@contextmanager
def running(depth: int, history: bool) -> Iterator[Trio]:
    trio = Trio(depth, history)
    try:
        for actor in trio.actors:
            actor.ready()
        yield trio
    finally:
        for actor in trio.actors:
            actor.end()


def late(count: int) -> Result:
    with running(count, history=True) as trio:
        trio.publisher.ask((1, count + 1))
        time.sleep(0.3)
        meter = trio.meter()
        trio.subscriber.ask(count)
        return ended(trio.subscriber, count, meter)


def missed(count: int) -> Result:
    return outage(count, is_settled=True)


def outage(count: int, is_settled: bool = False) -> Result:
    """Timed from the router's return or, if `is_settled`, from the next sample after everyone has reconnected."""
    with running(count + 10, history=False) as trio:
        subscriber, publisher = trio.subscriber, trio.publisher
        subscriber.ask(1)
        time.sleep(0.3)
        publisher.ask((1, 2))
        subscriber.hear()
        trio.router.end()
        time.sleep(0.2)
        publisher.ask((2, count + 2))
        trio.router = Actor(zenoh_router, trio.port).ready()
        returned = time.monotonic()
        subscriber.say("canary")
        while not subscriber.pipe.poll(0.005):
            publisher.say("canary")
        subscriber.hear()
        if is_settled:
            time.sleep(0.2)
        meter = trio.meter()
        subscriber.say(count + 2)
        begun = publisher.ask((count + 2, count + 3))
        return ended(subscriber, count + 2, meter, begun if is_settled else returned)

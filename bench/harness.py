"""One measurement: a subject under a load, from the first event sent to the last one checked."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Self

import msgspec

from bench.job import Job, Load
from bench.peers.base import Peer
from bench.processes import JOIN_S_MAX, Failed, Process, Stage, free_ports

SERVER_ROOM_S = 0.2  # a server settles after its start, before its CPU time is counted
SAMPLE_EVERY_S = 0.05
MIB = 1 << 20

Word = dict[str, Any]


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of one run. Rates count published events that every subscriber received and checked."""

    events: int
    elapsed_s: float
    events_per_s: float
    node_cpu_us: float | None = None  # of the broker's process, per event; None without a broker
    publisher_cpu_us: float | None = None
    subscriber_cpu_us: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    waiting_mib: float | None = (
        None  # memory growth of the process that holds what a stalled subscriber has not read
    )
    holder_mib: float | None = None  # the whole memory of that process at the same time
    catch_up_events_per_s: float | None = None  # of the stalled subscriber, once it resumes


class Cast(msgspec.Struct, frozen=True):
    """The processes of a run."""

    server: Process | None
    publishers: list[Process]
    subscribers: list[Process]
    stalled: list[Process]

    @property
    def joining(self) -> list[Process]:
        return [*self.subscribers, *self.stalled]


async def measure(peer: Peer, load: Load, seconds: float, data: Path | None = None) -> Measured:
    """Run a load once. Raises `Failed` if there is no figure. No process is left running in any case."""
    async with Stage(data) as stage:
        cast = await start(stage, peer, load, seconds)
        await gather(process.expect("ready", JOIN_S_MAX) for process in cast.publishers)
        await gather(process.expect("joined", JOIN_S_MAX) for process in cast.joining)
        for process in cast.stalled:
            process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SERVER_ROOM_S)
        return await play(peer, load, cast, time_s_max(load, seconds))


def time_s_max(load: Load, seconds: float) -> float:
    return 60 + 10 * seconds + load.count / 5_000


async def start(stage: Stage, peer: Peer, load: Load, seconds: float) -> Cast:
    server_port, *lane_ports = free_ports(1 + load.publishers)
    described = peer.server(stage.place, server_port, load)
    server = await stage.server(described) if described else None

    def part(lane: int) -> Job:
        return Job(peer.name, load, seconds, server_port, tuple(lane_ports), lane)

    publishers = [await stage.worker(part(lane)) for lane in range(load.publishers)]
    joining = [await stage.worker(part(-1)) for _ in range(load.subscribers + load.stalled)]
    return Cast(server, publishers, joining[: load.subscribers], joining[load.subscribers :])


async def play(peer: Peer, load: Load, cast: Cast, limit_s: float) -> Measured:
    node_cpu_s = cast.server.cpu_s() if cast.server else 0.0
    async with MemoryWatch(holder_of(peer, load, cast)) as memory:
        for process in cast.publishers:
            process.go()
        sent = await gather(process.expect("done", limit_s) for process in cast.publishers)
        got = await gather(process.expect("done", limit_s) for process in cast.subscribers)
    node_cpu_s = cast.server.cpu_s() - node_cpu_s if cast.server else 0.0
    measured = summary(sent, got, node_cpu_s if cast.server else None)
    if not load.stalled:
        return measured
    return msgspec.structs.replace(
        measured,
        waiting_mib=memory.gained_mib,
        holder_mib=memory.peak_mib,
        catch_up_events_per_s=await catch_up(cast.stalled, measured.events, limit_s),
    )


def holder_of(peer: Peer, load: Load, cast: Cast) -> Process | None:
    """The process that holds what a stalled subscriber has not read; None if none is stalled."""
    if not load.stalled:
        return None
    return cast.publishers[0] if peer.holds_in_publisher else cast.server


class MemoryWatch:
    """Samples the memory of a process while a block runs, so that a peak in between is seen."""

    def __init__(self, process: Process | None) -> None:
        self._process = process
        self._before = self._peak = process.rss_bytes() if process else 0
        self._sampling: asyncio.Task[None] | None = None

    @property
    def peak_mib(self) -> float:
        return self._peak / MIB

    @property
    def gained_mib(self) -> float:
        return (self._peak - self._before) / MIB

    async def __aenter__(self) -> Self:
        if self._process:
            self._sampling = asyncio.create_task(self._sample(self._process))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sampling:
            self._sampling.cancel()

    async def _sample(self, process: Process) -> None:
        while True:
            self._peak = max(self._peak, process.rss_bytes())
            await asyncio.sleep(SAMPLE_EVERY_S)


async def catch_up(stalled: list[Process], events: int, limit_s: float) -> float:
    """Resume the stalled subscribers and wait until they have every event. Returns their rate."""
    start_ns = time.monotonic_ns()
    for process in stalled:
        process.send_signal(signal.SIGCONT)
    got = await gather(process.expect("done", limit_s) for process in stalled)
    check_counts(events, got)
    return events / seconds_between(start_ns, got)


def summary(sent: list[Word], got: list[Word], node_cpu_s: float | None) -> Measured:
    events = sum(word["events"] for word in sent)
    check_counts(events, got)
    elapsed_s = seconds_between(min(word["start_ns"] for word in sent), got)
    latencies_us = sorted(ns / 1e3 for word in got for ns in word["latencies_ns"])
    return Measured(
        events=events,
        elapsed_s=elapsed_s,
        events_per_s=events / elapsed_s,
        node_cpu_us=None if node_cpu_s is None else node_cpu_s / events * 1e6,
        publisher_cpu_us=sum(word["cpu_s"] for word in sent) / events * 1e6,
        subscriber_cpu_us=sum(word["cpu_s"] for word in got) / events / len(got) * 1e6,
        p50_us=quantile(latencies_us, 0.50),
        p99_us=quantile(latencies_us, 0.99),
    )


def seconds_between(start_ns: int, got: list[Word]) -> float:
    return float(max(word["stop_ns"] for word in got) - start_ns) / 1e9


def check_counts(events: int, got: list[Word]) -> None:
    for word in got:
        if word["events"] != events:
            raise Failed(f"{events} events were published, a subscriber received {word['events']}")


def quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


async def gather(waiting: Iterable[Awaitable[Word]]) -> list[Word]:
    return list(await asyncio.gather(*waiting))

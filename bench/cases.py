"""The cases that are measured, and the groups of cases that alternate within one round.

A case reads one figure from the runs of a load. The cases of a group are measured round by round, subject after
subject, so that the two runs of a ratio are at most minutes apart.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from bench.job import Journal, Load, Mode

STALLED_EVENTS = 1_000_000

KEEPS_NOTHING = ("pyzmq-pubsub", "pyzmq-pushpull", "zenoh", "nats")
ALL = (
    "pyzmq-pubsub",
    "pyzmq-pushpull",
    "zenoh",
    "zenoh-advanced",
    "nats",
    "jetstream",
    "redis",
    "redis-always",
)
PACKED = ("pyzmq-pubsub", "pyzmq-pushpull", "zenoh", "nats", "jetstream", "redis")
MANY = ("pyzmq-pubsub", "zenoh", "nats", "jetstream", "redis")
BROKERS = ("nats", "jetstream", "redis", "redis-always")
QUEUES = ("pyzmq-pubsub", "nats", "jetstream", "redis")


class Figure(StrEnum):
    """The field of a measurement that a case reads."""

    RATE = "events_per_s"
    P50 = "p50_us"
    P99 = "p99_us"
    NODE_CPU = "node_cpu_us"
    WAITING = "waiting_mib"
    CATCH_UP = "catch_up_events_per_s"


UNITS = {
    Figure.RATE: "events/s",
    Figure.P50: "µs",
    Figure.P99: "µs",
    Figure.NODE_CPU: "µs/event",
    Figure.WAITING: "MiB",
    Figure.CATCH_UP: "events/s",
}
MORE_IS_BETTER = {Figure.RATE, Figure.CATCH_UP}


class Case(msgspec.Struct, frozen=True):
    name: str
    title: str
    group: str
    load: Load
    peers: tuple[str, ...]
    figure: Figure = Figure.RATE
    is_quick: bool = False
    rounds_max: int = 1_000

    @property
    def unit(self) -> str:
        return UNITS[self.figure]

    @property
    def is_more_better(self) -> bool:
        return self.figure in MORE_IS_BETTER

    @property
    def subjects(self) -> tuple[str, ...]:
        return ("reknit", *self.peers)


def load_for(subject: str, load: Load) -> Load:
    """The load for a subject. A peer has no choice of journal, so one run of it serves both of reknit's."""
    return load if subject == "reknit" else msgspec.structs.replace(load, journal=Journal.DURABLE)


def throughput(label: str, size: int, is_quick: bool) -> list[Case]:
    """One publisher, one subscriber: both journals, single events and batches, and the node's CPU."""
    group, text = f"1x1 {label}", f"{size} B" if size < 1024 else f"{size // 1024} KiB"
    single, batch = Load(size), Load(size, Mode.BATCH)
    in_memory = Journal.MEMORY
    return [
        Case(f"single-{label}", f"{text}, one by one", group, single, ALL, is_quick=is_quick),
        Case(f"batch-{label}", f"{text}, as batches", group, batch, PACKED, is_quick=is_quick),
        Case(
            f"single-{label}-memory",
            f"{text}, one by one, journal in memory",
            group,
            msgspec.structs.replace(single, journal=in_memory),
            KEEPS_NOTHING,
        ),
        Case(
            f"batch-{label}-memory",
            f"{text}, as batches, journal in memory",
            group,
            msgspec.structs.replace(batch, journal=in_memory),
            KEEPS_NOTHING,
        ),
        Case(
            f"node-cpu-{label}",
            f"{text}, one by one: the node's CPU",
            group,
            single,
            BROKERS,
            Figure.NODE_CPU,
            is_quick,
        ),
        Case(
            f"node-cpu-batch-{label}",
            f"{text}, as batches: the node's CPU",
            group,
            batch,
            ("nats", "jetstream", "redis"),
            Figure.NODE_CPU,
        ),
    ]


def shapes(publishers: int, subscribers: int) -> list[Case]:
    """Several publishers and subscribers. The rate is that of published events, which every subscriber receives."""
    shape = f"{publishers}x{subscribers}"
    ends = f"{publishers} to {subscribers}"
    return [
        Case(
            f"single-100-{shape}",
            f"100 B, one by one, {ends}",
            shape,
            Load(100, Mode.SINGLE, publishers, subscribers),
            MANY,
        ),
        Case(
            f"batch-100-{shape}",
            f"100 B, as batches, {ends}",
            shape,
            Load(100, Mode.BATCH, publishers, subscribers),
            MANY,
        ),
    ]


def latency() -> list[Case]:
    paced = Load(100, Mode.PACED)
    in_memory = msgspec.structs.replace(paced, journal=Journal.MEMORY)
    text = "one way at 1,000 events/s"
    return [
        Case("latency-p50", f"{text}, median", "latency", paced, ALL, Figure.P50, is_quick=True),
        Case("latency-p99", f"{text}, 99th percentile", "latency", paced, ALL, Figure.P99, is_quick=True),
        Case(
            "latency-p50-memory",
            f"{text}, median, journal in memory",
            "latency",
            in_memory,
            KEEPS_NOTHING,
            Figure.P50,
        ),
        Case(
            "latency-p99-memory",
            f"{text}, 99th percentile, journal in memory",
            "latency",
            in_memory,
            KEEPS_NOTHING,
            Figure.P99,
        ),
    ]


def stalled() -> list[Case]:
    """One subscriber is stalled while another reads; then it resumes, and must receive every event."""
    load = Load(100, stalled=1, count=STALLED_EVENTS)
    group = "stalled"
    million = "1 M events waiting for a stalled subscriber"
    return [
        Case("stalled-memory", f"{million}: memory", group, load, QUEUES, Figure.WAITING, rounds_max=1),
        Case("stalled-rate", f"{million}: the other's rate", group, load, QUEUES, rounds_max=1),
        Case("unstalled-rate", "the same rate with nobody stalled", group, Load(100), QUEUES, rounds_max=1),
        Case(
            "stalled-catch-up",
            f"{million}: its rate when it goes on",
            group,
            load,
            QUEUES,
            Figure.CATCH_UP,
            rounds_max=1,
        ),
    ]


CASES: tuple[Case, ...] = (
    *throughput("100", 100, is_quick=True),
    *throughput("1k", 1024, is_quick=False),
    *shapes(2, 2),
    *shapes(1, 8),
    *latency(),
    *stalled(),
)


def choose(names: list[str], is_quick: bool) -> list[Case]:
    """The cases with these names, in which `*` is a wildcard; without names, all cases or the quick ones."""
    if not names:
        return [case for case in CASES if case.is_quick or not is_quick]
    unknown = [name for name in names if not any(fnmatchcase(case.name, name) for case in CASES)]
    if unknown:
        raise ValueError(f"unknown case: {', '.join(unknown)}; --list shows all")
    return [case for case in CASES if any(fnmatchcase(case.name, name) for name in names)]

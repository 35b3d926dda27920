"""A node that gets three times of what it can take: its memory, a light client's latency, and whether anything is lost.

python -m reknit.testing.overload                 a minute at three times the measured capacity
python -m reknit.testing.overload --seconds 20 --times 5 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reknit.client.blocking.session import connect_sync
from reknit.processes.process import NodeProcess, Process, ending
from reknit.processes.workers import ReceivedEvents, publisher_command, subscriber_command
from reknit.testing.load.probe import LightClient, light_client, memory_bytes, quantile

PUBLISHERS = 3
ENDLESS = 0
CAPACITY_S = 8.0
SAMPLE_S = 0.2
LIGHT_EVERY_S = 0.02
SETTLE_S = 300.0
RATIO_GOAL = 10.0
FULL_RATE = 10_000_000.0
"""More than any publisher can do."""


class Overload:
    """One node with publishers, a durable subscriber that keeps the count, and a light client beside them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.node = NodeProcess(folder)
        self.record = folder / "audit.received"
        command = subscriber_command(self.node.url, "audit", "load/**", self.record)
        self.subscriber = Process("audit", command, folder)
        self.processes: list[Process] = [self.node, self.subscriber]
        self.memory: list[int] = []

    def publishers(self, phase: str, rate: float, count: int = PUBLISHERS) -> list[Process]:
        """Publishers at this rate together."""
        made = []
        for number in range(count):
            name = f"{phase}{number}"
            command = publisher_command(self.node.url, name, f"load/{name}", ENDLESS, rate / count)
            made.append(Process(name, command, self._folder))
        self.processes += made
        return made

    def stored(self) -> int:
        """How many events the node has stored on the topics of the load."""
        with connect_sync(self.node.url, wait_s=60) as session:
            rows = session.status()["topics"]
        return sum(row["events"] for row in rows if row["topic"].startswith("load/"))

    async def watch(self, seconds: float) -> None:
        """Sample the node's memory for some time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.memory.append(memory_bytes(self.node.pid))
            await asyncio.sleep(SAMPLE_S)

    async def capacity(self) -> float:
        """Events a second that are stored if publishers send as fast as they can."""
        made = self.publishers("c", FULL_RATE)
        for one in made:
            one.start()
        await asyncio.sleep(2.0)
        began, before = time.monotonic(), await asyncio.to_thread(self.stored)
        await asyncio.sleep(CAPACITY_S)
        rate = (await asyncio.to_thread(self.stored) - before) / (time.monotonic() - began)
        await self._stop(made)
        return rate

    async def _stop(self, made: list[Process]) -> None:
        for one in made:
            await asyncio.to_thread(one.stop)

    async def run(self, seconds: float, times: float) -> dict[str, Any]:
        """The whole measurement."""
        self.node.start()
        self.subscriber.start()
        capacity = await self.capacity()
        await asyncio.to_thread(self._settled)
        async with light_client(self.node.url, "light/probe", LIGHT_EVERY_S) as light:
            await asyncio.sleep(2.0)
            began = time.monotonic()
            await asyncio.sleep(CAPACITY_S)
            rest = light.since(began)
            self.memory.clear()
            calm = memory_bytes(self.node.pid)
            made = self.publishers("o", capacity * times)
            for one in made:
                one.start()
            await asyncio.sleep(2.0)
            began = time.monotonic()
            await self.watch(seconds)
            loaded = light.since(began)
            await self._stop(made)
            in_flight = await asyncio.to_thread(self._settled)
            await asyncio.sleep(1.0)
            return self._figures(capacity, times, light, rest, loaded, calm, in_flight)

    def _settled(self) -> int:
        """Wait until the durable subscriber has everything. Returns how many events are still in flight."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            with connect_sync(self.node.url, wait_s=60) as session:
                in_flight: int = sum(row["in_flight"] for row in session.ledger())
            if not in_flight or time.monotonic() > deadline:
                return in_flight
            time.sleep(0.5)

    def _figures(
        self,
        capacity: float,
        times: float,
        light: LightClient,
        rest: list[float],
        loaded: list[float],
        calm: int,
        in_flight: int,
    ) -> dict[str, Any]:
        with connect_sync(self.node.url, wait_s=60) as session:
            rows = session.ledger()
        recorded = sum(seqs.count for seqs in ReceivedEvents(self.record).seqs.values())
        published = sum(row["published"] for row in rows)
        p99_rest, p99 = quantile(rest, 0.99), quantile(loaded, 0.99)
        return {
            "capacity_per_s": round(capacity),
            "offered_per_s": round(capacity * times),
            "published": published,
            "recorded_by_subscriber": recorded,
            "lost": sum(row["lost"] for row in rows),
            "in_flight": in_flight,
            "balanced": all(row["balanced"] for row in rows),
            "memory_mib_before": round(calm / 2**20, 1),
            "memory_mib_max": round(max(self.memory) / 2**20, 1),
            "light_events": len(light.latencies_s),
            "light_missing": light.missing,
            "p99_ms_at_rest": round(p99_rest * 1000, 2),
            "p99_ms_overloaded": round(p99 * 1000, 2),
            "p99_ratio": round(p99 / p99_rest, 1) if p99_rest else 0.0,
        }


def problems(found: dict[str, Any], memory_mib_max: float) -> list[str]:
    """What is wrong about the figures. The ratio of latencies is shown, and is no verdict: machines differ."""
    wrong = []
    if found["published"] != found["recorded_by_subscriber"] or found["lost"] or found["in_flight"]:
        wrong.append("events are missing")
    if not found["balanced"]:
        wrong.append("the ledger does not balance")
    if found["light_missing"]:
        wrong.append("the light client missed events")
    if found["memory_mib_max"] > memory_mib_max:
        wrong.append(f"the node's memory is over {memory_mib_max:.0f} MiB")
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the figures. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m reknit.testing.overload", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long the overload lasts (default: 60)"
    )
    parser.add_argument("--times", type=float, default=3.0, help="times the measured capacity (default: 3)")
    parser.add_argument(
        "--memory-mib",
        type=float,
        default=512.0,
        help="the most memory that the node may take (default: 512)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="reknit-overload-") as folder:
        overload = Overload(Path(folder))
        with ending(*overload.processes):
            try:
                found = asyncio.run(overload.run(arguments.seconds, arguments.times))
            finally:
                for process in overload.processes:
                    process.kill()
    wrong = problems(found, arguments.memory_mib)
    if arguments.json:
        print(json.dumps({**found, "problems": wrong}, indent=2))
    else:
        for name, value in found.items():
            print(
                f"{name.replace('_', ' '):24} {value:,}"
                if isinstance(value, int | float)
                else f"{name:24} {value}"
            )
        goal = "met" if found["p99_ratio"] < RATIO_GOAL else "missed"
        print(f"goal of less than {RATIO_GOAL:g} times the latency at rest: {goal}")
        print("\n".join(f"PROBLEM {text}" for text in wrong) or "nothing is lost, and memory is bounded")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

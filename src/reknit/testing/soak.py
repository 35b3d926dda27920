"""A fabric under steady load for a long time: do memory, open files or latency grow?

python -m reknit.testing.soak                             half an hour
python -m reknit.testing.soak --minutes 5 --report soak.html

Clients come and go all the time, and retention removes old events, so that every figure has a level to stay at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reknit.client.session import connect
from reknit.client.tunnel import open as open_tunnel
from reknit.errors import ReknitError
from reknit.processes.process import NodeProcess, Process, ending, free_port
from reknit.processes.workers import publisher_command, subscriber_command
from reknit.testing.load.page import report_html
from reknit.testing.load.probe import LightClient, light_client, memory_bytes, open_files, quantile
from reknit.testing.load.slopes import Slope, slope

ENDLESS = 0
RATE = 500.0
SAMPLE_S = 2.0
WARM_UP = 0.3
"""The part of the time that does not count: caches fill, and retention has nothing to remove yet."""
SETTINGS = {
    "journal.segment_bytes": "1 MiB",
    "journal.tail_cache_bytes": "2 MiB",
    "retention.bytes_max": "8 MiB",
    "retention.protect_unsettled": "false",
    "recovery.history_events_max": "1000",
}
LEAST = {"memory": 4.0 * 2**20, "files": 4.0, "p50": 0.005, "p99": 0.02}
"""Growth below this is no growth."""
RATIO = {"memory": 0.1, "files": 0.1, "p50": 1.0, "p99": 1.0}
"""Nor is growth by less than this part of the level. Latencies depend on what else the machine does."""


@dataclass
class Samples:
    """Figures over time, by name: (seconds, value)."""

    rows: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, at_s: float, value: float) -> None:
        self.rows.setdefault(name, []).append((at_s, value))

    def slopes(self) -> dict[str, Slope]:
        """The slope of each figure after the warm-up."""
        return {name: slope(rows[int(len(rows) * WARM_UP) :]) for name, rows in self.rows.items()}


def is_up(name: str, found: Slope) -> bool:
    """Whether a figure grows."""
    kind = name.split()[-1]
    return found.is_up(LEAST[kind], RATIO[kind])


class Soak:
    """Two linked nodes with publishers, durable subscribers, and clients that come and go."""

    def __init__(self, folder: Path) -> None:
        self._web_port = free_port()
        options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        self.first = NodeProcess(folder, *options, name="first")
        web = ("--http", f"127.0.0.1:{self._web_port}", "--link", self.first.url)
        self.second = NodeProcess(folder, *options, *web, name="second")
        self.nodes = [self.first, self.second]
        self.clients = [
            Process("p1", publisher_command(self.first.url, "p1", "load/p1", ENDLESS, RATE), folder),
            Process("p2", publisher_command(self.second.url, "p2", "load/p2", ENDLESS, RATE), folder),
            Process("s1", subscriber_command(self.first.url, "s1", "load/**", Path("/dev/null")), folder),
            Process("s2", subscriber_command(self.second.url, "s2", "load/**", Path("/dev/null")), folder),
        ]
        self.samples = Samples()
        self.visits = 0

    @property
    def processes(self) -> list[Process]:
        return [*self.nodes, *self.clients]

    async def run(self, seconds: float) -> None:
        """Run for this time."""
        for process in self.processes:
            await asyncio.to_thread(process.start)
        async with light_client(self.second.url, "light/probe", 0.05) as light:
            visiting = asyncio.create_task(self._visit())
            began = time.monotonic()
            while (now_s := time.monotonic() - began) < seconds:
                await asyncio.sleep(SAMPLE_S)
                self._sample(light, began, now_s)
            visiting.cancel()
            with suppress(asyncio.CancelledError):
                await visiting

    def _sample(self, light: LightClient, began: float, now_s: float) -> None:
        for process in self.processes:
            if not process.is_running:
                raise ReknitError(f"{process.name} ended: {process.output()[-2000:]}")
        for node in self.nodes:
            self.samples.add(f"{node.name} memory", now_s, memory_bytes(node.pid))
            self.samples.add(f"{node.name} files", now_s, open_files(node.pid))
        recent = light.since(began + now_s - SAMPLE_S)
        light.latencies_s = light.latencies_s[-1000:]
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            self.samples.add(f"latency {name}", now_s, quantile(recent, part))

    async def _visit(self) -> None:
        """Clients that come, do a little of everything, and go."""
        while True:
            self.visits += 1
            with suppress(ReknitError, OSError, TimeoutError):
                async with asyncio.timeout(20):
                    await self._visit_once(self.visits)

    async def _visit_once(self, number: int) -> None:
        url = self.nodes[number % 2].url
        async with connect(url, wait_s=10) as session:
            async with session.subscribe("load/**", history=10) as events:
                await anext(events)
            async with session.subscribe(f"visit/{number % 10}", name=f"visitor {number % 5}") as events:
                await session.publish(f"visit/{number % 10}", b"x")
                await anext(events)
                await events.forget()
        async with open_tunnel(f"http://127.0.0.1:{self._web_port}", "load/p1", wait_s=10) as tunnel:
            await anext(aiter(tunnel))


def rows_of(samples: Samples) -> list[dict[str, Any]]:
    """The slopes as rows for people."""
    return [
        {
            "figure": name,
            "level": _text(name, found.level),
            "per_hour": _text(name, found.per_hour),
            "grown": _text(name, found.grown),
            "sureness": round(found.sureness, 1),
            "grows": is_up(name, found),
        }
        for name, found in samples.slopes().items()
    ]


def _text(name: str, value: float) -> str:
    match name.split()[-1]:
        case "memory":
            return f"{value / 2**20:.1f} MiB"
        case "files":
            return f"{value:.1f}"
        case _:
            return f"{value * 1000:.2f} ms"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the slopes. Returns the exit code: 1 if a figure grows."""
    parser = argparse.ArgumentParser(prog="python -m reknit.testing.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="reknit-soak-") as folder:
        soak = Soak(Path(folder))
        with ending(*soak.processes):
            asyncio.run(soak.run(arguments.minutes * 60))
    rows = rows_of(soak.samples)
    if arguments.report:
        arguments.report.write_text(report_html(soak.samples.rows, rows, soak.visits), encoding="utf-8")
    if arguments.json:
        print(json.dumps({"visits": soak.visits, "slopes": rows}, indent=2))
    else:
        _print(rows, soak.visits)
    return 1 if any(row["grows"] for row in rows) else 0


def _print(rows: list[dict[str, Any]], visits: int) -> None:
    for row in rows:
        verdict = "GROWS" if row["grows"] else "steady"
        print(f"{row['figure']:16} {row['level']:>12}  {row['per_hour']:>12} an hour  {verdict}")
    grows = [row["figure"] for row in rows if row["grows"]]
    print(
        f"{visits:,} clients came and went; "
        + (f"these grow: {', '.join(grows)}" if grows else "nothing grows")
    )


if __name__ == "__main__":
    sys.exit(main())

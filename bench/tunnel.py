"""Tunnels beside uvicorn and Starlette's streaming response: deliveries per second, latency, memory, a reconnect storm.

python -m bench.tunnel                       1,000 and 5,000 tunnels, 20,000 idle ones, a storm: about four minutes
python -m bench.tunnel --tunnels 1000        one size
python -m bench.tunnel --only storm          throughput, latency, memory, idle, storm or pages

The server and the process with all clients have a core each, if there are two. Events have 256 bytes. reknit stores
each event on disk, synced, before it is sent; reknit-memory has its journal in memory; Starlette stores nothing, and
gets events that are already encoded. `pages` are tabs in Chromium: see `bench/tunnel_pages.py`.

A latency ends when the kernel has the bytes at the client's end of the connection. One process runs all clients, so the
time at which it reads them depends on their number, not on the server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.goals import Verdict
from bench.results import Row, merge, short
from bench.tunnel_clients import Clients, Probe, raise_limit
from bench.tunnel_pages import pages

ROUNDS = 3
KINDS = ("reknit", "reknit-memory", "starlette")
EVENTS_PER_TUNNEL = {1_000: 320, 5_000: 64}
LATENCY_S = 10
PER_SECOND = 20_000


class Server:
    """A server in a process of its own, which reads requests line by line."""

    def __init__(self, kind: str, directory: Path, port: int = 0) -> None:
        self.kind = kind
        command = [sys.executable, "-m", "bench.tunnel_servers", kind, str(directory), str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.port = int(self._answer()["port"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self.kind} ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, **what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def ask(self, **what: Any) -> dict[str, Any]:
        self.tell(**what)
        return self._answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def throughput(server: Server, clients: Clients, tunnels: int, window: int) -> float:
    """Deliveries per second, with at most `window` events in flight."""
    count = EVENTS_PER_TUNNEL.get(tunnels, 200)
    if window == 1:
        count //= 4
    before = clients.events
    began = time.perf_counter()
    server.tell(do="publish", count=count, window=window)
    clients.read_until(before + count * tunnels)
    took = time.perf_counter() - began
    server.ask(do="sync")
    return count * tunnels / took


def latency(server: Server, clients: Clients, tunnels: int) -> dict[str, float]:
    """From just before an event is published to its arrival, at a steady rate. The first second does not count."""
    clients.note_arrivals()
    per_s = PER_SECOND / tunnels
    count, warm, before = int(LATENCY_S * per_s), int(per_s), clients.events
    server.tell(do="pace", count=warm + count, per_s=per_s)
    clients.time_until(before + warm * tunnels)
    took = sorted(clients.time_until(before + (warm + count) * tunnels))
    server.ask(do="sync")
    return {"p50_ms": took[len(took) // 2] * 1e3, "p99_ms": took[int(len(took) * 0.99)] * 1e3}


def measure(kind: str, tunnels: int, only: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        server = Server(kind, Path(directory))
        try:
            row: dict[str, Any] = {"server": kind, "tunnels": tunnels}
            before = server.ask(do="memory")["bytes"]
            clients = Clients(server.port)
            clients.open(tunnels)
            row["kb_a_tunnel"] = (server.ask(do="memory")["bytes"] - before) / tunnels / 1024
            if only in ("", "throughput"):
                row["one_by_one_per_s"] = throughput(server, clients, tunnels, 1)
                row["deliveries_per_s"] = throughput(server, clients, tunnels, 64)
            if only in ("", "latency"):
                row |= latency(server, clients, tunnels)
            clients.close()
            return row
        finally:
            server.kill()


def compare(tunnels: int, only: str) -> list[dict[str, Any]]:
    """Measure all servers in turn, round by round. Returns the median of each figure."""
    rows: list[dict[str, Any]] = []
    for round_ in range(ROUNDS):
        rows += [measure(kind, tunnels, only) for kind in (*KINDS[round_ % 3 :], *KINDS[: round_ % 3])]
    found = []
    for kind in KINDS:
        mine = [row for row in rows if row["server"] == kind]
        names = [name for name in mine[0] if name != "server"]
        found.append(
            {"server": kind} | {name: statistics.median(row[name] for row in mine) for name in names}
        )
    return found


def idle(tunnels: int) -> dict[str, Any]:
    """Open many idle tunnels on one node, then send an event to all."""
    tunnels = min(tunnels, raise_limit(tunnels + 1_000) - 100)
    with tempfile.TemporaryDirectory() as directory:
        server = Server("reknit", Path(directory))
        try:
            before = server.ask(do="memory")["bytes"]
            clients = Clients(server.port)
            began = time.perf_counter()
            clients.open(tunnels)
            opened_s = time.perf_counter() - began
            memory = server.ask(do="memory")["bytes"] - before
            cpu = server.ask(do="cpu")["s"]
            time.sleep(5)
            idle_cpu = server.ask(do="cpu")["s"] - cpu
            began = time.perf_counter()
            server.tell(do="publish", count=1, window=1)
            clients.read_until(tunnels)
            reached_s = time.perf_counter() - began
            server.ask(do="sync")
            began = time.perf_counter()
            server.ask(do="stop")
            stopped_s = time.perf_counter() - began
            clients.close()
            return {
                "idle": tunnels,
                "kb_a_tunnel": memory / tunnels / 1024,
                "opened_s": opened_s,
                "idle_cpu_percent": idle_cpu / 5 * 100,
                "an_event_reached_all_s": reached_s,
                "stopped_s": stopped_s,
            }
        finally:
            server.kill()


def storm(tunnels: int) -> dict[str, Any]:
    """Kill a server with all tunnels open, reconnect all at once, and check what they receive and who waits."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server("reknit", Path(directory))
        port = server.port
        clients = Clients(port)
        clients.open(tunnels)
        server.tell(do="publish", count=20, window=1)
        clients.read_until(20 * tunnels)
        server.ask(do="sync")
        server.kill()
        clients.drain()
        server = Server("reknit", Path(directory), port)
        probe: Probe | None = None
        try:
            server.ask(do="missed", count=100, first=20)
            probe = Probe(port)
            began = time.perf_counter()
            back = clients.reopen()
            while not clients.is_complete(120):
                clients.read_some()
            took = time.perf_counter() - began
            waits, probe = probe.stop(), None
            return {
                "storm": tunnels,
                "reconnected_s": back,
                "all_recovered_s": took,
                "states": clients.states(),
                "tunnels_with_gaps_or_repeats": clients.wrong(120),
                "answers_meanwhile": len(waits),
                "longest_answer_s": max(waits, default=0.0),
            }
        finally:
            if probe is not None:
                probe.stop()
            server.kill()
            clients.close()


FIGURES = {
    "deliveries_per_s": ("deliveries", "events/s"),
    "one_by_one_per_s": ("one-by-one", "events/s"),
    "p99_ms": ("p99", "ms"),
    "kb_a_tunnel": ("memory", "KiB/tunnel"),
}
PAGE_FIGURES = {
    "events_per_s_a_tab": ("events", "events/s"),
    "late_ms": ("late", "ms"),
    "longest_gap_ms": ("gap", "ms"),
}


def rows_of(found: list[dict[str, Any]]) -> list[Row]:
    """The figures as rows of `bench/results.json`."""
    of_pages = [
        Row(f"pages-{one['tabs']}-{one['rate']}-{name}", f"reknit-{one['pages']}", short(one[key]), unit)
        for one in found
        if "pages" in one
        for key, (name, unit) in PAGE_FIGURES.items()
    ]
    return of_pages + [
        Row(f"tunnels-{one['tunnels']:.0f}-{name}", one["server"], short(one[key]), unit)
        for one in found
        if "server" in one
        for key, (name, unit) in FIGURES.items()
        if key in one
    ]


def verdicts(rows: list[dict[str, Any]]) -> Iterator[Verdict]:
    """The goals, and whether they are met."""
    peers = {row["tunnels"]: row for row in rows if row.get("server") == "starlette"}
    for mine in rows:
        if mine.get("server") == "reknit":
            peer, size = peers[mine["tunnels"]], f"{mine['tunnels']:,.0f} tunnels"
            if "deliveries_per_s" in mine:
                ratio = short(mine["deliveries_per_s"] / peer["deliveries_per_s"])
                yield Verdict(f"{size}: ≥ 4x Starlette's deliveries/s", ratio, ratio >= 4)
            if "p99_ms" in mine:
                ratio = short(mine["p99_ms"] / peer["p99_ms"])
                yield Verdict(f"{size}, 20,000 deliveries/s: p99 ≤ 1/4 of Starlette's", ratio, ratio <= 0.25)
            kib = short(mine["kb_a_tunnel"])
            yield Verdict(f"{size}: ≤ 4 KiB a tunnel", kib, kib <= 4)
        elif "idle" in mine:
            yield Verdict("20,000 idle tunnels on one node", mine["idle"], mine["idle"] >= 20_000)
        elif "storm" in mine:
            wrong = mine["tunnels_with_gaps_or_repeats"]
            yield Verdict("after a storm of 5,000: tunnels with gaps or repeats", wrong, wrong == 0)
        elif "pages" in mine:
            which = f"{mine['pages']}, {mine['tabs']} tabs, {mine['rate']:,} events/s"
            wrong = mine["repeats_or_holes"]
            yield Verdict(f"{which}: events that are missing, or came twice", wrong, wrong == 0)
            if mine["pages"] == "shared" and mine["tabs"] == 1:
                gap = short(mine["longest_gap_ms"])
                yield Verdict(f"{which}: no gap over 50 ms", gap, gap <= 50)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tunnels", type=int, nargs="*", default=[1_000, 5_000])
    parser.add_argument(
        "--only", default="", choices=["", "throughput", "latency", "memory", "idle", "storm", "pages"]
    )
    args = parser.parse_args()
    raise_limit(8_000)
    rows: list[dict[str, Any]] = []
    if args.only not in ("idle", "storm", "pages"):
        for tunnels in args.tunnels:
            rows += compare(tunnels, args.only)
    if args.only in ("", "idle"):
        rows.append(idle(20_000))
    if args.only in ("", "storm"):
        rows.append(storm(5_000))
    if args.only in ("", "pages"):
        rows += pages()
    for row in rows:
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}))
    judged = list(verdicts(rows))
    for verdict in judged:
        print(f"{'met   ' if verdict.is_met else 'missed'} {verdict.title}: {verdict.value:g}")
    merge(rows_of(rows), judged)


if __name__ == "__main__":
    main()

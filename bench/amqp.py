"""AMQP through a node, beside the same clients without one, in one run: `python -m bench.amqp`.

A sender and a receiver, both proton's Python client with its own defaults, in processes of their own on loopback;
100 bytes per message, at least once, 1,000 messages of credit. `direct`: the receiver itself listens. `journal`:
through a node that stores each message on disk, synced, before it is accepted and delivered. `balanced`: through a node
to one of many receivers, and the sender gets the receiver's outcome. The time of a rate runs from the first send until
the last message is received and the last outcome is known. Every message has a number that is checked.

`router`: through skupper-router, also balanced, in the same run, if there is a `skrouterd` (`--router`, or on the
path). The goal is to be at least as fast. It is not packaged for Debian: build it from its source. Without it, the goal
is what it reached elsewhere, 0.94 of `direct` (11.8k/s through it, 12.5k/s without). Ratios are taken within a round;
the median is shown.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.goals import Verdict
from bench.results import Row, merge
from reknit.processes.process import NodeProcess, ending, free_port

try:
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Container
except ModuleNotFoundError:
    print("AMQP is not measured: python-qpid-proton is not installed (make setup says why)")
    raise SystemExit(0) from None

CASES = ("direct", "journal", "balanced")
CREDIT = 1_000
PAYLOAD_BYTES = 100
GOAL = 0.94
WAIT_S = 120.0
ROUTER = "router"
ROUTER_CONFIG = """
router {{
    mode: standalone
    id: bench
}}
listener {{
    host: 127.0.0.1
    port: {port}
    role: normal
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
address {{
    prefix: bench
    distribution: balanced
}}
"""
CONFIG = '[[topics]]\npattern = "bench/balanced/**"\ndistribution = "balanced"\n'


Round = dict[str, dict[str, float]]
"""The figures of each case."""


class Sending(MessagingHandler):  # type: ignore[misc]
    """Sends `count` messages as fast as credit allows, and counts the accepted ones."""

    def __init__(self, url: str, address: str, count: int, pipe: Connection) -> None:
        super().__init__()
        self._url, self._address, self._count, self._pipe = url, address, count, pipe
        self._sent = self._accepted = 0
        self._filler = "x" * (PAYLOAD_BYTES - 10)

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, reconnect=False)
        event.container.create_sender(connection, self._address)

    def on_sendable(self, event: Any) -> None:
        if not self._sent:
            self._began = time.perf_counter()
        while event.sender.credit and self._sent < self._count:
            event.sender.send(Message(body=f"{self._sent:010}{self._filler}"))
            self._sent += 1

    def on_accepted(self, event: Any) -> None:
        self._accepted += 1
        if self._accepted == self._count:
            self._pipe.send((self._began, time.perf_counter(), time.process_time()))
            event.connection.close()


class Receiving(MessagingHandler):  # type: ignore[misc]
    """Receives `count` messages and checks their order. Listens itself if there is no node."""

    def __init__(self, url: str, address: str, count: int, pipe: Connection, listens: bool) -> None:
        super().__init__(prefetch=CREDIT)
        self._url, self._address, self._count, self._pipe, self._listens = url, address, count, pipe, listens
        self._received = self._wrong = 0

    def on_start(self, event: Any) -> None:
        if self._listens:
            self._acceptor = event.container.listen(self._url)
            self._pipe.send("ready")
        else:
            connection = event.container.connect(self._url, reconnect=False)
            event.container.create_receiver(connection, self._address)

    def on_link_opened(self, event: Any) -> None:
        if not self._listens:
            self._pipe.send("ready")

    def on_message(self, event: Any) -> None:
        self._wrong += int(event.message.body[:10]) != self._received
        self._received += 1
        if self._received == self._count:
            self._pipe.send((time.perf_counter(), self._wrong, time.process_time()))

    def on_connection_closed(self, event: Any) -> None:
        self._end(event)

    def on_disconnected(self, event: Any) -> None:
        self._end(event)

    def _end(self, event: Any) -> None:
        if self._listens:
            self._acceptor.close()


def run(kind: type[MessagingHandler], *args: Any) -> None:
    """Run a client: the target of its process."""
    Container(kind(*args)).run()


def measure(url: str, address: str, count: int, listens: bool) -> dict[str, float]:
    """Measure one sender and one receiver: messages per second, and the CPU time of both."""
    spawn = mp.get_context("spawn")
    near, far = spawn.Pipe()
    near_sender, far_sender = spawn.Pipe()
    receiver = spawn.Process(target=run, args=(Receiving, url, address, count, far, listens), daemon=True)
    sender = spawn.Process(target=run, args=(Sending, url, address, count, far_sender), daemon=True)
    try:
        receiver.start()
        assert near.poll(WAIT_S), "the receiver did not start"
        near.recv()
        sender.start()
        assert near_sender.poll(WAIT_S), "not everything was accepted"
        began, accepted, sender_cpu_s = near_sender.recv()
        assert near.poll(WAIT_S), "not everything was received"
        received, wrong, receiver_cpu_s = near.recv()
        assert not wrong, f"{wrong} messages out of order"
        took_s = max(received, accepted) - began
        return {"rate": count / took_s, "clients_cpu_us": (sender_cpu_s + receiver_cpu_s) / count * 1e6}
    finally:
        for process in (sender, receiver):
            if process.pid:
                process.kill()
                process.join()


def node_cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def wait_for(port: int) -> None:
    """Wait until a process listens on the port."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, f"no process listens on port {port} after {WAIT_S:g} s"
        time.sleep(0.02)


@contextmanager
def routing(command: str, port: int, folder: Path) -> Iterator[int]:
    """Run a skrouterd on a port. Yields its process id."""
    config, log = folder / "skrouterd.conf", folder / "skrouterd.log"
    config.write_text(ROUTER_CONFIG.format(port=port))
    with log.open("w") as told:
        router = subprocess.Popen([command, "-c", str(config)], stdout=told, stderr=told)
    try:
        wait_for(port)
        yield router.pid
    finally:
        router.terminate()
        router.wait()


@contextmanager
def serving(port: int, folder: Path) -> Iterator[int]:
    """Run a node with an AMQP gateway on a port. Yields its process id."""
    (folder / "reknit.toml").write_text(CONFIG)
    node = NodeProcess(folder, "--amqp", f"127.0.0.1:{port}", name=f"node-{port}")
    with ending(node):
        node.start()
        wait_for(port)
        yield node.pid
        node.stop()


def measure_case(case: str, count: int, folder: Path, router: str) -> dict[str, float]:
    """Measure one case, with a node or a router of its own if it needs one."""
    port = free_port()
    url = f"127.0.0.1:{port}"
    if case == "direct":
        return measure(url, "", count, listens=True)
    between = routing(router, port, folder) if case == ROUTER else serving(port, folder)
    with between as pid:
        before = node_cpu_s(pid)
        taken = measure(url, f"bench/{case}/x", count, listens=False)
        taken["node_cpu_us"] = (node_cpu_s(pid) - before) / count * 1e6
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=30_000, help="messages of one measurement")
    parser.add_argument(
        "--rounds", type=int, default=11, help="the number of rounds; a single one may be off by a third"
    )
    parser.add_argument("--cases", default="", help=f"some of {', '.join((*CASES, ROUTER))} (default: all)")
    parser.add_argument("--router", default=shutil.which("skrouterd") or "", help="the skrouterd to run")
    options = parser.parse_args()
    every = [*CASES, ROUTER] if options.router else list(CASES)
    cases = options.cases.split(",") if options.cases else every
    if unknown := set(cases) - set(every):
        parser.error(f"unknown case: {', '.join(unknown)} (`{ROUTER}` needs --router PATH/TO/skrouterd)")
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = [*cases[number % len(cases) :], *cases[: number % len(cases)]]
            rounds.append(
                {case: measure_case(case, options.count, Path(folder), options.router) for case in order}
            )
            print(f"round {number + 1}:", {case: round(taken["rate"]) for case, taken in rounds[-1].items()})
    report(cases, rounds)
    if cases == every:
        merge(rows_of(rounds), verdicts(rounds))


def median(rounds: list[Round], case: str, figure: str) -> float:
    return float(f"{statistics.median(one[case].get(figure, 0.0) for one in rounds):.4g}")


def ratio(rounds: list[Round], case: str, to: str = "direct") -> float:
    """The median ratio to another case's rate in the same round."""
    return float(f"{statistics.median(one[case]['rate'] / one[to]['rate'] for one in rounds):.3g}")


def rows_of(rounds: list[Round]) -> list[Row]:
    """The figures as rows of `bench/results.json`."""
    subjects = {
        "direct": "proton",
        ROUTER: "skrouterd",
        "journal": "reknit-journal",
        "balanced": "reknit-balanced",
    }
    rows = [Row("amqp", subjects[case], median(rounds, case, "rate"), "events/s") for case in rounds[0]]
    node = [
        Row("amqp-node-cpu", subjects[case], median(rounds, case, "node_cpu_us"), "µs/event")
        for case in rounds[0]
        if case != "direct"
    ]
    return rows + node


def verdicts(rounds: list[Round]) -> list[Verdict]:
    """The goals, and whether they are met."""
    to, goal, name = (
        (ROUTER, 1.0, "skupper-router") if ROUTER in rounds[0] else ("direct", GOAL, "proton to proton")
    )
    found = {case: ratio(rounds, case, to) for case in CASES[1:]}
    return [
        Verdict(f"AMQP, {case}: ≥ {goal:g} of {name}", value, value >= goal) for case, value in found.items()
    ]


def report(cases: list[str], rounds: list[Round]) -> None:
    """Print medians, and the ratios to other cases in the same round."""
    bases = [base for base in ("direct", ROUTER) if base in cases]
    titles = "".join(f"{f'of {base}':>11}" for base in bases)
    print(f"\n{'case':10} {'msg/s':>8}{titles} {'node µs':>8} {'clients µs':>11}")
    for case in cases:
        shown = "".join(f"{ratio(rounds, case, base):11.2f}" for base in bases)
        rate, node = median(rounds, case, "rate"), median(rounds, case, "node_cpu_us")
        clients = median(rounds, case, "clients_cpu_us")
        print(f"{case:10} {rate:8.0f}{shown} {node:8.1f} {clients:11.1f}")
    if set(CASES) <= set(cases):
        for verdict in verdicts(rounds):
            print(f"{'met' if verdict.is_met else 'missed'} {verdict.title}: {verdict.value}")


if __name__ == "__main__":
    main()

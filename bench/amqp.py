"""AMQP through a node, beside the same clients without one, in one run: `python -m bench.amqp`.

A sender and a receiver, both proton's Python client with its own defaults, in processes of their own on loopback;
100 bytes a message, at least once, 1,000 messages of credit. `direct`: the receiver listens itself. `journal`: through
a node that keeps each message on disk, synced, before it is accepted and handed on. `balanced`: through a node to one
of many receivers, and the sender gets the receiver's outcome. A rate counts from the first send until the last message
is received and the last outcome is known. Every message has a number that is checked.

The ratio to `direct` is made within a round; what is shown is the median. The same clients reached 11.8k/s through
skrouterd where they reached 12.5k/s directly: a ratio of 0.94 is the goal.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import socket
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.goals import Verdict
from bench.results import Row, merge
from reknit.testing.processes import NodeProcess, ending, free_port

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
CONFIG = '[[topics]]\npattern = "bench/balanced/**"\ndistribution = "balanced"\n'


class Sending(MessagingHandler):  # type: ignore[misc]
    """Sends so many messages as fast as there is credit, and counts what is accepted."""

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
    """Takes so many messages, in order; listens itself where there is no node."""

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
    """A client's process."""
    Container(kind(*args)).run()


def measure(url: str, address: str, count: int, listens: bool) -> dict[str, float]:
    """One sender and one receiver; messages a second, and the processor time of both."""
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
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def wait_for(port: int) -> None:
    """Return when somebody listens there."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the node does not listen for AMQP"
        time.sleep(0.02)


def measure_case(case: str, count: int, folder: Path) -> dict[str, float]:
    """One case: with a node of its own, unless it is without."""
    port = free_port()
    url = f"127.0.0.1:{port}"
    if case == "direct":
        return measure(url, "", count, listens=True)
    (folder / "reknit.toml").write_text(CONFIG)
    node = NodeProcess(folder, "--amqp", url, name=f"node-{port}")
    with ending(node):
        node.start()
        wait_for(port)
        before = node_cpu_s(node.pid)
        taken = measure(url, f"bench/{case}/x", count, listens=False)
        taken["node_cpu_us"] = (node_cpu_s(node.pid) - before) / count * 1e6
        node.stop()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=30_000, help="messages of one measurement")
    parser.add_argument(
        "--rounds", type=int, default=11, help="one round may be off by a third: a few say little"
    )
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    cases = options.cases.split(",")
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = [*cases[number % len(cases) :], *cases[: number % len(cases)]]
            rounds.append({case: measure_case(case, options.count, Path(folder)) for case in order})
            print(f"round {number + 1}:", {case: round(taken["rate"]) for case, taken in rounds[-1].items()})
    report(cases, rounds)
    if cases == list(CASES):
        merge(rows_of(rounds), verdicts(rounds))


def median(rounds: list[dict[str, dict[str, float]]], case: str, figure: str) -> float:
    return float(f"{statistics.median(one[case].get(figure, 0.0) for one in rounds):.4g}")


def ratio(rounds: list[dict[str, dict[str, float]]], case: str) -> float:
    """To the direct rate of the same round."""
    return float(f"{statistics.median(one[case]['rate'] / one['direct']['rate'] for one in rounds):.3g}")


def rows_of(rounds: list[dict[str, dict[str, float]]]) -> list[Row]:
    """The figures as `bench/results.json` has them."""
    rows = [
        Row(
            "amqp",
            "proton" if case == "direct" else f"reknit-{case}",
            median(rounds, case, "rate"),
            "events/s",
        )
        for case in CASES
    ]
    node = [
        Row("amqp-node-cpu", f"reknit-{case}", median(rounds, case, "node_cpu_us"), "µs/event")
        for case in CASES[1:]
    ]
    return rows + node


def verdicts(rounds: list[dict[str, dict[str, float]]]) -> list[Verdict]:
    """What was aimed at, beside what was found."""
    return [
        Verdict(
            f"AMQP, {case}: ≥ {GOAL} of proton to proton", ratio(rounds, case), ratio(rounds, case) >= GOAL
        )
        for case in CASES[1:]
    ]


def report(cases: list[str], rounds: list[dict[str, dict[str, float]]]) -> None:
    """Medians, and the ratio to the same round's direct rate."""
    print(f"\n{'case':10} {'msg/s':>8} {'of direct':>10} {'node µs':>8} {'clients µs':>11}")
    for case in cases:
        shown = f"{ratio(rounds, case):.2f}" if "direct" in cases else ""
        rate, node = median(rounds, case, "rate"), median(rounds, case, "node_cpu_us")
        clients = median(rounds, case, "clients_cpu_us")
        print(f"{case:10} {rate:8.0f} {shown:>10} {node:8.1f} {clients:11.1f}")
    print(f"goal: {GOAL} of direct")


if __name__ == "__main__":
    main()

"""A node with very many topics, sources and durable subscribers: how long it takes to start and to answer.

python -m reknit.testing.scale
python -m reknit.testing.scale --subscribers 500 --topics 50000 --sources 200000 --events 10000000 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from reknit.batch import Batch
from reknit.client.blocking.session import connect_sync
from reknit.client.session import connect
from reknit.processes.process import NodeProcess, Process, ending, free_port
from reknit.spark.blocking_connection import BlockingConnection
from reknit.testing.load.probe import memory_bytes
from reknit.wire.messages import Ack, Go, Hold, Refuse

CHUNK = 2_000
"""Batches that are sent at a time."""
READY_S = 600.0
ANSWER_S = 600.0
PAYLOAD = b"x" * 16


class ScaleNode(NodeProcess):
    """A node that may take long to start."""

    def start(self) -> None:
        """Start, and return when it listens."""
        Process.start(self)
        deadline = time.monotonic() + READY_S
        while not self._listens():
            assert self.is_running, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.005)


def batches(topics: int, sources: int, events: int) -> Iterator[Batch]:
    """One batch of each source; the sources are spread over the topics, and the events over the sources."""
    each, now_us = max(1, events // sources), time.time_ns() // 1000
    payloads = [PAYLOAD] * each
    for number in range(sources):
        yield Batch.build(number.to_bytes(16, "big"), f"scale/{number % topics}", 1, payloads, time_us=now_us)


def publish(url: str, made: Iterator[Batch]) -> None:
    """Publish batches, some at a time. Returns when all are stored."""
    with BlockingConnection(url) as link:
        while part := [batch for _, batch in zip(range(CHUNK), made, strict=False)]:
            waiting = {batch.source: batch.stop - 1 for batch in part}
            link.send_bytes(b"".join(bytes(batch.data) for batch in part))
            while waiting:
                match link.receive():
                    case Ack(source=source, seq=seq) if seq >= waiting.get(source, seq + 1):
                        del waiting[source]
                    case Hold() | Refuse() as refused:
                        raise AssertionError(refused)
                    case Go() | _:
                        pass


async def subscribe(url: str, count: int) -> None:
    """Leave durable subscribers behind: most follow one topic each, every tenth follows a tenth of all topics."""
    async with connect(url, wait_s=ANSWER_S) as session:
        for number in range(count):
            pattern = f"scale/*{number % 10}" if number % 10 == 0 else f"scale/{number}"
            async with session.subscribe(pattern.replace("/*", "/$*"), name=f"s{number}"):
                pass


def timed(call: Callable[[], object]) -> float:
    """How many seconds a call takes."""
    began = time.monotonic()
    call()
    return round(time.monotonic() - began, 2)


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fill a node, and measure it."""
    metrics = f"127.0.0.1:{free_port()}"
    node = ScaleNode(folder, "--metrics", metrics)
    found: dict[str, Any] = {}
    with ending(node):
        node.start()
        found["subscribe_s"] = timed(lambda: asyncio.run(subscribe(node.url, arguments.subscribers)))
        made = batches(arguments.topics, arguments.sources, arguments.events)
        found["publish_s"] = timed(lambda: publish(node.url, made))
        node.kill()
        found["start_after_kill_s"] = timed(node.start)
        found |= _answers(node.url, metrics)
        found["memory_mib"] = round(memory_bytes(node.pid) / 2**20)
        found["stop_s"] = timed(node.stop)
        found["start_s"] = timed(node.start)
    return found


def _answers(url: str, metrics: str) -> dict[str, Any]:
    """How long the node takes to answer, and how long a publisher waits at most meanwhile."""
    found: dict[str, Any] = {}
    with connect_sync(url, wait_s=ANSWER_S) as session:
        found["status_s"] = timed(session.status)
        found["ledger_s"] = timed(session.ledger)
        found["ledger_of_a_topic_s"] = timed(lambda: session.ledger(topic="scale/7"))
        found["metrics_s"] = timed(lambda: urlopen(f"http://{metrics}/metrics", timeout=ANSWER_S).read())
        found["publish_one_s"] = timed(lambda: session.publish("scale/new", b"x"))
        [journal] = [session.status()["journal"]]
        found["events"] = journal["events"]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m reknit.testing.scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--subscribers", type=int, default=500)
    parser.add_argument("--topics", type=int, default=50_000)
    parser.add_argument("--sources", type=int, default=200_000)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="reknit-scale-") as folder:
        found = measure(Path(folder), arguments)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):24} {value:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

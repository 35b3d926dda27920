"""kill -9 of publisher, node and subscriber in turn, under load: the ledger balances and nothing is missing.

`REKNIT_KILLS=100` makes it a long test; a few rounds are part of every run.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reknit
from reknit.processes.process import NodeProcess, Process, ending
from reknit.processes.workers import ReceivedEvents, publisher_command, subscriber_command

KILLS = int(os.environ.get("REKNIT_KILLS", "6"))
RATE = 5_000.0

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(120 + 5 * KILLS)]


def test_the_ledger_balances_whoever_is_killed(tmp_path: Path) -> None:
    rng = Random(KILLS)
    node = NodeProcess(tmp_path)
    topics = {f"sensor-{number}": f"plant/{number}" for number in (1, 2)}
    publishers = [
        Process(name, publisher_command(node.url, name, topic, 0, RATE), tmp_path)
        for name, topic in topics.items()
    ]
    files = {name: tmp_path / f"{name}.notes" for name in ("audit", "billing")}
    subscribers = [
        Process(name, subscriber_command(node.url, name, "plant/**", file, 997), tmp_path)
        for name, file in files.items()
    ]
    victims: list[list[Process]] = [list(publishers), [node], list(subscribers)]
    with ending(node, *publishers, *subscribers):
        node.start()
        for process in (*subscribers, *publishers):
            process.start()
        for kind in islice(cycle(victims), KILLS):
            time.sleep(rng.uniform(0.1, 0.6))
            victim = rng.choice(kind)
            victim.kill()
            time.sleep(rng.uniform(0.0, 0.3))
            victim.start()
        wait_for_peers(node.url, set(topics), set(files))
        for process in publishers:
            assert process.stop() == 0, process.output()
        rows = settled_ledger(node.url)
        for process in subscribers:
            assert process.stop() == 0, process.output()
        assert node.stop() == 0, node.output()

    totals = {topics[process.name]: int(process.output().split()[-1]) for process in publishers}
    print(f"{KILLS} kills, {totals} published", file=sys.stderr)
    assert min(totals.values()) > 0
    found = {(row["subscriber"], row["topic"]): row for row in rows}
    for name, file in files.items():
        received = ReceivedEvents(file)
        for topic, count in totals.items():
            row = found[name, topic]
            assert row["balanced"], row
            assert (row["published"], row["lost"], row["in_flight"]) == (count, 0, 0), row
            assert row["accepted"] + row["dead_lettered"] == count, row
            assert row["dead_lettered"] == count // 997, row
            assert received.missing(topic, count) == []


def wait_for_peers(url: str, publishers: set[str], subscribers: set[str], patience_s: float = 60.0) -> None:
    """Until all of them are connected: then they can be stopped in order."""
    deadline = time.monotonic() + patience_s
    with reknit.connect_sync(url, wait_s=20.0) as session:
        while not are_there(session.status(), publishers, subscribers):
            assert time.monotonic() < deadline, session.status()
            time.sleep(0.1)


def are_there(status: dict[str, Any], publishers: set[str], subscribers: set[str]) -> bool:
    here = {row["name"] for row in status["subscribers"] if row["state"] != "away"}
    return publishers <= {peer["name"] for peer in status["peers"]} and subscribers <= here


def settled_ledger(url: str, patience_s: float = 60.0) -> list[dict[str, Any]]:
    """The ledger once nothing is in flight."""
    deadline = time.monotonic() + patience_s
    with reknit.connect_sync(url, wait_s=20.0) as session:
        while True:
            rows = session.ledger()
            if not any(row["in_flight"] for row in rows) or time.monotonic() > deadline:
                return rows
            time.sleep(0.1)

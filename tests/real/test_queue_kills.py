"""kill -9 of a queue's members and of its node: nothing is lost, and the others get what a member had."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import reknit
from reknit.outcome import FinalOutcome
from reknit.processes.process import NodeProcess, Process, ending
from reknit.processes.workers import ReceivedEvents, member_command
from reknit.seqset import SeqSet
from reknit.store.reader import open_reader

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

EVENTS = 6_000
PATIENCE_S = 60.0
TOPIC = "jobs/a"
QUEUE = "queue/work"


def accepted(url: str) -> int:
    with reknit.connect_sync(url, wait_s=20.0) as session:
        return sum(row["accepted"] for row in session.ledger() if row["subscriber"] == QUEUE)


def wait_for(url: str, count: int) -> None:
    """Until so many events of the queue are accepted."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := accepted(url)) < count:
        assert time.monotonic() < deadline, f"{found} of {count}"
        time.sleep(0.02)


def everything(files: list[Path]) -> SeqSet:
    """What the members recorded, together."""
    seen = SeqSet()
    for file in files:
        seen = seen.union(ReceivedEvents(file).seqs.get(TOPIC, SeqSet()))
    return seen


@pytest.mark.parametrize("kills_node", [False, True])
def test_what_a_killed_member_had_goes_to_the_others(tmp_path: Path, kills_node: bool) -> None:
    node = NodeProcess(tmp_path)
    files = [tmp_path / f"notes{number}" for number in range(3)]
    members = [
        Process(f"member{number}", member_command(node.url, "work", "jobs/**", file), tmp_path)
        for number, file in enumerate(files)
    ]
    with ending(node, *members):
        node.start()
        for member in members:
            member.start()
        with reknit.connect_sync(node.url, wait_s=20.0) as session:
            deadline = time.monotonic() + PATIENCE_S
            while not any(row["members"] == 3 for row in session.status()["subscribers"]):
                assert time.monotonic() < deadline, session.status()["subscribers"]
                time.sleep(0.02)
            for first in range(1, EVENTS, 100):
                session.publish_many(TOPIC, [b"%d" % seq for seq in range(first, first + 100)])
                if first == 2001:
                    members[0].kill()
                if first == 3001 and kills_node:
                    break
        if kills_node:
            node.kill()
            node.start()
            with reknit.connect_sync(node.url, wait_s=20.0) as session:
                count = sum(row["events"] for row in session.status()["topics"] if row["topic"] == TOPIC)
        else:
            count = EVENTS
        wait_for(node.url, count)
        assert all(file.exists() for file in files), "every member got some"
        node.kill()
    journal = open_reader(node.data)
    ends = [by_end for (topic, _), by_end in journal.ledger.accounts[QUEUE].ends.items() if topic == TOPIC]
    journal.close()
    assert sum(by_end[FinalOutcome.ACCEPTED].count for by_end in ends) == count
    assert everything(files).count == count

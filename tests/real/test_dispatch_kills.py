"""kill -9 of a node: attempts go on counting, pauses hold, and no end is there without its dead letter."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

import reknit
from reknit.batch import Batch
from reknit.dead_letter import DeadLetterContent, read_letter
from reknit.outcome import FinalOutcome, Outcome
from reknit.processes.process import NodeProcess, Process, ending
from reknit.processes.workers import subscriber_command
from reknit.seqset import SeqSet
from reknit.store.journal import Readable
from reknit.store.reader import open_reader

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

EVENTS = 40_000
KILLS = 3
PATIENCE_S = 40.0
TOPIC = "reknit/dead-letters"


def all_letters(journal: Readable) -> list[DeadLetterContent]:
    """Every dead letter that a journal's files hold."""
    found: list[DeadLetterContent] = []
    for source in journal.sources(TOPIC):
        for entry in journal.find(TOPIC, source, 1, 1 << 62):
            found += [read_letter(payload) for payload in Batch.parse(journal.fetch(entry)).payloads()]
    return found


def test_attempts_are_counted_across_kills(tmp_path: Path) -> None:
    node = NodeProcess(
        tmp_path, "--set", "dispatch.attempts_max=3", "--set", "dispatch.retry_backoff_s_max=0.1"
    )
    with ending(node):
        node.start()
        with (
            reknit.connect_sync(node.url, wait_s=20.0) as session,
            session.subscribe("plant/a", name="audit"),
        ):
            session.publish("plant/a", b"poison")
        for attempt in (1, 2, 3):
            with (
                reknit.connect_sync(node.url, wait_s=20.0) as session,
                session.subscribe("plant/a", name="audit", auto_accept=False) as events,
            ):
                event = next(events)
                assert event.attempt == attempt
                event.fail()
            node.kill()
            node.start()
        node.kill()
    journal = open_reader(node.data)
    [letter] = all_letters(journal)
    assert (letter.reason, letter.attempts) == ("attempts_exhausted", 3)
    assert [one.outcome for one in letter.tries] == [Outcome.FAILED] * 3
    journal.close()


def test_pause_holds_across_a_kill(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url, wait_s=20.0) as session:
            assert session.pause("plant/**") == ["plant/**"]
        node.kill()
        node.start()
        with (
            reknit.connect_sync(node.url, wait_s=20.0) as session,
            session.subscribe("**", name="audit") as events,
        ):
            session.publish("plant/a", b"later")
            session.publish("car/1", b"now")
            assert next(events).payload == b"now"
            assert session.resume("plant/**") == []
            assert next(events).payload == b"later"


def test_dead_letter_is_durable_before_its_source_is_settled(tmp_path: Path) -> None:
    """Whenever the node is killed: what its ledger calls dead-lettered has a letter on disk."""
    node, rng = NodeProcess(tmp_path), Random(7)
    subscriber = Process(
        "audit", subscriber_command(node.url, "audit", "plant/**", tmp_path / "notes", 1), tmp_path
    )
    with ending(node, subscriber):
        node.start()
        with reknit.connect_sync(node.url, wait_s=20.0) as session:
            for first in range(1, EVENTS, 500):
                session.publish_many("plant/a", [b"%d" % seq for seq in range(first, first + 500)])
        subscriber.start()
        seen = [0]
        for _ in range(KILLS):
            wait_for_dead(node.url, seen[-1])
            time.sleep(rng.uniform(0.0, 0.1))
            node.kill()
            seen.append(dead_without_letter_is_none(node.data))
            node.start()
        wait_for_dead(node.url, seen[-1])
    assert 0 < seen[1] <= seen[2] <= seen[3]


def wait_for_dead(url: str, before: int) -> None:
    """Until more events are dead-lettered than before, or all."""
    deadline = time.monotonic() + PATIENCE_S
    with reknit.connect_sync(url, wait_s=20.0) as session:
        while not any(row["dead_lettered"] > min(before, EVENTS - 1) for row in session.ledger()):
            assert time.monotonic() < deadline, session.ledger()
            time.sleep(0.02)


def dead_without_letter_is_none(data: Path) -> int:
    """How many events are dead-lettered on disk; each of them has its letter."""
    journal = open_reader(data)
    account = journal.ledger.accounts.get("audit")
    ends = {} if account is None else account.ends
    told: dict[bytes, SeqSet] = {}
    for letter in all_letters(journal):
        told.setdefault(letter.source, SeqSet()).add(letter.seq, letter.seq + 1)
    journal.close()
    dead = {source: by_end.get(FinalOutcome.DEAD_LETTERED, SeqSet()) for (_, source), by_end in ends.items()}
    for source, seqs in dead.items():
        assert seqs.difference(told.get(source, SeqSet())).ranges() == []
    return sum(seqs.count for seqs in dead.values())

"""The checks of a campaign: each finds what it is for, and nothing in a campaign that went well."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.outcome import FinalOutcome
from reknit.processes.process import Process
from reknit.records import OutcomeRow, Outcomes
from reknit.seqset import Range, SeqSet
from reknit.store.disk import DiskJournal
from reknit.testing.chaos.checks import findings
from reknit.testing.chaos.damage import Damage
from reknit.testing.chaos.fabric import Fabric, Publisher, Subscriber
from reknit.testing.chaos.machine import Machine
from reknit.testing.chaos.nodes import ChaosNode
from reknit.testing.chaos.observation import Observation
from reknit.testing.chaos.record import Published, Received, RecordFile

MACHINE = Machine(False, False, False, frozenset())


def ledger(**more: Any) -> dict[str, Any]:
    row = {"published": 10, "accepted": 10, "dead_lettered": 0, "lost": 0, "in_flight": 0, "balanced": True}
    return {**row, **more}


def good(folder: Path) -> Observation:
    """p1 published ten events, s1 got them, and node n1 and the pipeline agree."""
    fabric = Fabric(folder, MACHINE, ())
    fabric.publishers.append(Publisher("p1", "chaos/p1/in", once=True))
    fabric.subscribers.append(Subscriber("s1", "n1", "chaos/**", "s1"))
    fabric.clients["p1"] = Process("p1", ["true"], folder)
    record = RecordFile(fabric.record("s1"))
    record.write("got", "chaos/p1/in", "aa", 1, "p1", 1, 10)
    seen = Observation(fabric)
    seen.published["p1"] = Published(last=10, is_done=True)
    seen.received["s1"] = Received.read(record.path)
    key = ("n1", "s1", "chaos/p1/in")
    seen.ledgers[key] = ledger()
    seen.audit = {"problems": [], "lost": 0, "rows": [{**ledger(), **dict(zip(NAMES, key, strict=True))}]}
    seen.tables["p1"] = seen.received["s1"].numbers["p1"].copy()
    return seen


NAMES = ("node", "subscriber", "topic")


def names(seen: Observation) -> set[str]:
    return {finding.partition(":")[0] for finding in findings(seen)}


def test_a_campaign_that_went_well_has_no_finding(tmp_path: Path) -> None:
    assert findings(good(tmp_path)) == []


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (ledger(in_flight=1, accepted=9), "everything_ended"),
        (ledger(lost=1, accepted=9), "nothing_is_lost_without_cause"),
        (ledger(balanced=False), "ledgers_balance"),
        (ledger(accepted=9), "ledgers_agree_with_subscribers"),
        (ledger(published=11), "ledgers_agree_with_publishers"),
        (ledger(accepted=9, dead_lettered=1), "rejected_events_are_dead_letters"),
        (ledger(accepted=8), "audit_agrees_with_ledgers"),
    ],
)
def test_a_wrong_ledger_is_found(tmp_path: Path, row: dict[str, Any], found: str) -> None:
    seen = good(tmp_path)
    seen.ledgers["n1", "s1", "chaos/p1/in"] = row
    assert found in names(seen)


def test_an_event_that_never_arrived_is_found(tmp_path: Path) -> None:
    seen = good(tmp_path)
    seen.received["s1"].numbers["p1"].discard(4, 5)
    assert "every_event_arrived" in names(seen)


def test_an_event_that_the_tables_lack_is_found(tmp_path: Path) -> None:
    seen = good(tmp_path)
    seen.tables["p1"].discard(4, 5)
    assert names(seen) == {"tables_have_every_event"}


def test_a_publisher_that_is_told_less_than_before_is_found(tmp_path: Path) -> None:
    seen = good(tmp_path)
    seen.published["p1"].complaints.append("resumes at 5, and 10 was stored")
    assert names(seen) == {"stored_events_stay_stored"}


def test_a_reader_that_gets_events_again_is_found(tmp_path: Path) -> None:
    seen = good(tmp_path)
    seen.fabric.subscribers.append(Subscriber("sse", "n1", "chaos/**", "", has_ids=False))
    record = RecordFile(seen.fabric.record("sse"))
    for number in (*range(3, 11), 10):
        record.write("read", "p1", number, "place")
    seen.received["sse"] = Received.read(record.path)
    assert names(seen) == {"readers_get_each_event_once"}


def test_an_order_that_nobody_got_is_found(tmp_path: Path) -> None:
    seen = good(tmp_path)
    seen.fabric.clients["order"] = Process("order", ["true"], tmp_path)
    RecordFile(seen.fabric.record("order")).write("outcome", 1, "ACCEPTED")
    assert names(seen) == {"accepted_orders_were_accepted"}


def test_a_logged_error_is_found(tmp_path: Path) -> None:
    seen = good(tmp_path)
    seen.fabric.clients["p1"].log.write_text("Traceback (most recent call last):\n  oops\n")
    assert names(seen) == {"no_traceback_is_logged"}


SOURCE = bytes(16)


def damaged(folder: Path) -> Observation:
    """The same, but four of the events were unreadable in the journal of n1 before the pipeline captured them."""
    seen = good(folder)
    assert seen.audit is not None
    missing = {"topic": "chaos/p1/in", "source": SOURCE.hex(), "start": 3, "stop": 7}
    seen.audit["problems"] = [{"node": "n1", "subscriber": "s1", "problem": "…", **missing}]
    seen.audit["rows"][0]["published"] = 6
    return seen


def damage(folder: Path, outcomes: Sequence[Range] = ()) -> ChaosNode:
    """A node whose journal has five batches, of which the second and the third are damaged, or these outcomes."""
    node = ChaosNode(folder, "n1", control=None)
    with closing(DiskJournal(node.data)) as journal:
        for first in range(1, 11, 2):
            batch = Batch.build(SOURCE, "chaos/p1/in", first, [b"x" * 50, b"y" * 50], time_us=1)
            journal.stage(batch.data, [batch.head])
            journal.commit()
        for start, stop in outcomes:
            row = OutcomeRow("chaos/p1/in", SOURCE, start, stop, FinalOutcome.ACCEPTED)
            journal.stage_record(Outcomes("s1", [row]))
        journal.commit()
    node.damaged_segments = 2
    if outcomes:
        return node
    [log] = node.data.glob("log/*.log")
    data = bytearray(log.read_bytes())
    for at in (len(data) * 3 // 10, len(data) // 2):
        data[at] ^= 0x5A
    log.write_bytes(data)
    return node


def test_a_problem_of_the_audit_is_found(tmp_path: Path) -> None:
    assert names(damaged(tmp_path)) == {"audit_agrees_with_ledgers"}


def test_events_that_ended_before_their_journal_was_damaged_are_no_finding(tmp_path: Path) -> None:
    seen = damaged(tmp_path)
    seen.fabric.nodes["n1"] = damage(tmp_path)
    assert Damage(seen.fabric.nodes["n1"].data).events == {
        ("chaos/p1/in", SOURCE): SeqSet.from_ranges([(3, 7)])
    }
    assert findings(seen) == []
    seen.audit["problems"][0]["stop"] = 8  # type: ignore[index]
    assert names(seen) == {"audit_agrees_with_ledgers"}


def test_outcomes_whose_record_was_damaged_are_no_finding(tmp_path: Path) -> None:
    seen = damaged(tmp_path)
    assert seen.audit is not None
    seen.audit["rows"][0] |= {"published": 10, "accepted": 6, "in_flight": 4}
    assert names(seen) == {"audit_agrees_with_ledgers"}
    seen.fabric.nodes["n1"] = damage(tmp_path, outcomes=[(1, 3), (7, 11)])
    assert findings(seen) == []


def test_an_outcome_that_the_pipeline_missed_is_found(tmp_path: Path) -> None:
    seen = damaged(tmp_path)
    assert seen.audit is not None
    seen.audit["rows"][0] |= {"published": 10, "accepted": 6, "in_flight": 4}
    seen.audit["problems"][0] |= {"start": 7, "stop": 11}
    seen.fabric.nodes["n1"] = damage(tmp_path, outcomes=[(1, 3), (7, 11)])
    assert names(seen) == {"audit_agrees_with_ledgers"}

"""What a repair knows of the events that it sets aside, and what can be read around them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reknit.entries import Removed
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.directory import opening
from reknit.store.directory.repair import repair
from reknit.store.log.segment_files import segment_path, segment_starts
from tests.store.journals import SOURCE_A, batch, entries, spans, stage
from tests.store.test_damage import flip, log_file, make_template, open_journal, repaired


def test_events_of_the_last_batch_are_known_to_be_lost_where_its_head_is_whole(tmp_path: Path) -> None:
    template = make_template(tmp_path, 1 << 20, is_closed=False)
    entry = template.entries[-1]
    flip(log_file(template.directory), entry.end - 1)
    head = entry.head
    assert repair(template.directory).lost == (Removed(head.topic, head.source, head.first, head.stop),)
    journal = open_journal(template.directory)
    assert journal.sources(head.topic)[head.source] == head.stop - 1
    journal.close()


def test_an_event_whose_outcome_was_damaged_is_before_no_floor(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "made")
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    records = []
    for seq in range(1, 5):
        stage(journal, batch(seq))
        row = OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)
        records.append(journal.stage_record(Outcomes("audit", [row], journal.staged_end)))
        journal.commit()
    found = entries(journal)
    shutil.copytree(tmp_path / "made", tmp_path / "killed")
    journal.close()
    flip(log_file(tmp_path / "killed"), records[1] + 20)
    again = repaired(tmp_path / "killed")
    account = again.ledger.accounts["audit"]
    assert account.open_within(("t/a", SOURCE_A), 1, 5) == [(2, 3)]
    assert account.floor <= found[1].position
    again.close()


def test_a_hole_that_a_repair_left_is_read_over_where_damage_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "VERIFIED_BYTES", 8)
    pieces = make_template(tmp_path, 2_000, is_closed=True)
    entry, after = pieces.entries[4:6]  # back to back, without a record between them
    with pieces.copied() as directory:
        flip(segment_path(directory / "log", 0), entry.end - 1)
        repair(directory)
        first_after = min(start for start in segment_starts(directory / "log") if start >= entry.end)
        flip(segment_path(directory / "log", first_after), after.end - 1 - first_after)
        journal = open_journal(directory)
        rest = [one for one in pieces.entries if one not in (entry, after)]
        assert spans(entries(journal)) == spans(rest)
        assert journal.read(entry.position).entries[0].position > after.position
        assert journal.records(entry.position)[1] > after.position
        journal.close()

"""Damage that is found while a journal is read: what is skipped, what is lost with it, and what is still served."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.entries import Entry, Removed
from reknit.errors import Gone, LocalError
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes
from reknit.seqset import SeqSet
from reknit.store.directory import opening
from reknit.store.disk import DiskJournal
from reknit.store.log.retention import Retention
from reknit.store.log.segment_files import segment_path, segment_starts
from reknit.store.reader import open_reader
from tests.store.journals import SOURCE_A, SOURCE_B, batch, entries, keep, spans, stage

LAST = 60
SEGMENT_BYTES = 3_000


@pytest.fixture(autouse=True)
def verify_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening checks the last 4 MiB, which here would be everything."""
    monkeypatch.setattr(opening, "VERIFIED_BYTES", 8)


def open_journal(directory: Path, retention: Retention | None = None) -> DiskJournal:
    """Without a cache, so that every read comes from the files."""
    return DiskJournal(
        directory, retention, segment_bytes=SEGMENT_BYTES, tail_cache_bytes=0, preallocate_bytes=4_096
    )


def fill(directory: Path) -> list[Entry]:
    """Two series and a record after each pair of batches, in many small files."""
    journal = open_journal(directory)
    for seq in range(1, LAST + 1):
        stage(journal, batch(seq), batch(2 * seq - 1, 2, "t/b", SOURCE_B))
        journal.stage_record(
            Outcomes("audit", [OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)])
        )
        journal.commit()
    found = entries(journal)
    journal.close()
    return found


@pytest.fixture
def made(tmp_path: Path) -> list[Entry]:
    return fill(tmp_path)


def damage(directory: Path, position: int, size: int = 1) -> None:
    """Change bytes of the log at a position."""
    start = max(one for one in segment_starts(directory / "log") if one <= position)
    with segment_path(directory / "log", start).open("r+b") as file:
        file.seek(position - start)
        data = file.read(size)
        file.seek(position - start)
        file.write(bytes(byte ^ 0x5A for byte in data))


def events(found: list[Entry]) -> dict[tuple[str, bytes], SeqSet]:
    held: dict[tuple[str, bytes], SeqSet] = {}
    for entry in found:
        held.setdefault((entry.head.topic, entry.head.source), SeqSet()).add(
            entry.head.first, entry.head.stop
        )
    return held


def removed(entry: Entry) -> Removed:
    return Removed(entry.head.topic, entry.head.source, entry.head.first, entry.head.stop)


def runs_lost(journal: DiskJournal) -> list[Removed]:
    lost: list[Removed] = []
    position = journal.start
    while position < journal.end:
        run = journal.read(position)
        lost += run.lost
        position = run.next_position
    return lost


@pytest.fixture
def damaged(tmp_path: Path, made: list[Entry]) -> Iterator[tuple[DiskJournal, Entry]]:
    """A journal with a flipped byte in one batch of an old file."""
    entry = made[11]
    damage(tmp_path, entry.end - 1)
    journal = open_journal(tmp_path)
    yield journal, entry
    journal.close()


def test_read_skips_a_damaged_batch_and_names_its_events(
    damaged: tuple[DiskJournal, Entry], made: list[Entry]
) -> None:
    journal, entry = damaged
    assert spans(entries(journal)) == spans([one for one in made if one is not entry])
    assert runs_lost(journal) == [removed(entry)]
    (part,) = journal.take_unreadable()
    assert (part.position, part.stop, part.lost) == (entry.position, entry.end, (removed(entry),))
    assert journal.take_unreadable() == []


def test_events_after_two_damaged_batches_of_one_file_are_served(tmp_path: Path, made: list[Entry]) -> None:
    first, second = made[5], made[8]
    assert segment_starts(tmp_path / "log")[1] > made[11].end
    for entry in (first, second):
        damage(tmp_path, entry.end - 1)
    journal = open_journal(tmp_path)
    served = spans(entries(journal))
    assert spans(made[9:12]) == [one for one in served if one in spans(made[9:12])]
    assert not {spans([first])[0], spans([second])[0]} & set(served)
    journal.close()


def test_damage_is_logged_once(damaged: tuple[DiskJournal, Entry], caplog: pytest.LogCaptureFixture) -> None:
    journal, entry = damaged
    with caplog.at_level(logging.ERROR, "reknit.store"):
        for _ in range(3):
            entries(journal)
    (line,) = caplog.messages
    assert f"{entry.end - entry.position} bytes can't be read" in line
    assert "2 events are lost" in line or "1 events are lost" in line


def test_queries_by_seq_leave_a_gap(damaged: tuple[DiskJournal, Entry]) -> None:
    journal, entry = damaged
    head = entry.head
    found = journal.find(head.topic, head.source, 1, 1_000)
    held = SeqSet.from_ranges((one.head.first, one.head.stop) for one in found)
    assert not held.overlap(head.first, head.stop)
    assert journal.held(head.topic, head.source) == held
    assert journal.lost(head.topic, head.source) == SeqSet.from_ranges([(head.first, head.stop)])
    with pytest.raises(Gone):
        journal.fetch(entry)


def test_records_after_damage_are_read(damaged: tuple[DiskJournal, Entry]) -> None:
    journal, _ = damaged
    found, position = [], 0
    while position < journal.end:
        part, position = journal.records(position)
        found += part
    assert len(found) == LAST


def test_a_position_inside_a_frame_makes_nothing_unreadable(
    damaged: tuple[DiskJournal, Entry], made: list[Entry]
) -> None:
    journal, entry = damaged
    for other in made:
        if other is not entry:
            with pytest.raises(LocalError):
                journal.read(other.position + 8)
    assert [part.lost for part in journal.take_unreadable()] in ([], [(removed(entry),)])
    assert events(entries(journal)) == events([one for one in made if one is not entry])


def test_a_file_that_was_cut_short_is_lost_from_there(tmp_path: Path, made: list[Entry]) -> None:
    start = segment_starts(tmp_path / "log")[2]
    inside = [one for one in made if start <= one.position < segment_starts(tmp_path / "log")[3]]
    path = segment_path(tmp_path / "log", start)
    with path.open("r+b") as file:
        file.truncate(inside[3].position - start + 20)
    journal = open_journal(tmp_path)
    assert spans(entries(journal)) == spans([one for one in made if one not in inside[3:]])
    assert len(journal.take_unreadable()) == 1
    journal.close()


def test_a_file_that_vanishes_while_the_journal_is_open_is_lost(tmp_path: Path, made: list[Entry]) -> None:
    journal = open_journal(tmp_path)
    starts = segment_starts(tmp_path / "log")
    segment_path(tmp_path / "log", starts[2]).unlink()
    left = [one for one in made if not starts[2] <= one.position < starts[3]]
    assert spans(entries(journal)) == spans(left)
    assert events([one for one in made if one not in left]) == {
        (one.topic, one.source): SeqSet.from_ranges(
            (two.start, two.stop) for two in runs_lost(journal) if two.topic == one.topic
        )
        for one in runs_lost(journal)
    }
    journal.close()


def test_damage_of_what_the_index_does_not_have_yet(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    positions = [keep(journal, batch(seq)) for seq in range(1, 20)]
    assert journal.unsaved_bytes
    damage(tmp_path, positions[5] - 1)
    assert [entry.position for entry in entries(journal)] == [*positions[:4], *positions[5:]]
    assert runs_lost(journal) == [Removed("t/a", SOURCE_A, 5, 6)]
    journal.close()


def test_damage_that_retention_removes_is_forgotten(tmp_path: Path, made: list[Entry]) -> None:
    damage(tmp_path, made[1].end - 1)
    journal = open_journal(tmp_path, Retention(count_max=20))
    entries(journal)
    assert journal.state.unreadable
    journal.trim()
    assert journal.start > made[1].position
    assert not journal.state.unreadable
    journal.close()


def test_readers_in_other_processes_skip_damage_too(tmp_path: Path, made: list[Entry]) -> None:
    entry = made[11]
    damage(tmp_path, entry.position)
    with open_reader(tmp_path) as reader:
        assert spans(entries(reader)) == spans([one for one in made if one is not entry])
        head = entry.head
        assert not reader.held(head.topic, head.source).overlap(head.first, head.stop)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_damage_costs_only_what_is_reported(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("any")
    made = fill(directory)
    old = segment_starts(directory / "log")[-2]
    for _ in range(data.draw(st.integers(1, 4))):
        damage(directory, data.draw(st.integers(0, old - 1)), data.draw(st.integers(1, 400)))
    journal = open_journal(directory)
    held, lost = events(entries(journal)), runs_lost(journal)
    for series, published in events(made).items():
        gone = SeqSet.from_ranges((one.start, one.stop) for one in lost if (one.topic, one.source) == series)
        assert held.get(series, SeqSet()).union(gone) == published
        assert not held.get(series, SeqSet()).intersection(gone)
    journal.close()

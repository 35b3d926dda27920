"""Reading a journal from beside the process that writes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reknit.entries import Removed
from reknit.environment import DiskFiles
from reknit.errors import Closed, Gone, JournalError
from reknit.outcome import FinalOutcome
from reknit.processes.process import start_tied
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.directory.verification import verify_journal
from reknit.store.disk import DiskJournal
from reknit.store.log.retention import Retention
from reknit.store.reader import open_reader
from tests.store.journals import SOURCE_A, SOURCE_B, batch, entries, keep, spans, stage


def open_journal(directory: Path, retention: Retention | None = None) -> DiskJournal:
    return DiskJournal(directory, retention, segment_bytes=2_000, preallocate_bytes=8_192)


def test_a_reader_follows_the_writer(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    with open_reader(tmp_path) as reader:
        assert (reader.start, reader.end) == (0, 0)
        position = 0
        for first in range(1, 120):
            stage(journal, batch(first))
            assert list(reader.read(position).entries) == []
            journal.commit()
            run = reader.read(position)
            assert [entry.head.first for entry in run.entries] == [first]
            position = run.next_position
            if first % 25 == 0:
                journal.checkpoint()
                assert [e.head.first for e in reader.find("t/a", SOURCE_A, 1, 999)] == list(
                    range(1, first + 1)
                )
        assert spans(entries(reader)) == spans(entries(journal))
        assert reader.sources("t/a") == {SOURCE_A: 119}
        assert reader.topics() == ["t/a"]
        assert reader.held("t/a", SOURCE_A).ranges() == [(1, 120)]
    journal.close()


def test_a_reader_does_not_see_what_is_written_and_not_yet_synced(tmp_path: Path) -> None:
    seen: list[int] = []

    class Peeking(DiskFiles):
        def fdatasync(self, fd: int) -> None:
            with open_reader(tmp_path) as reader:
                seen.append(len(entries(reader)))
            assert verify_journal(tmp_path).damages == ()
            super().fdatasync(fd)

    journal = DiskJournal(tmp_path, files=Peeking())
    seen.clear()
    for first in range(1, 4):
        keep(journal, batch(first))
    assert seen == [0, 1, 2]
    journal.close()


def test_a_reader_finds_what_the_index_does_not_have_yet(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    keep(journal, batch(1, 5))
    journal.checkpoint()
    keep(journal, batch(6, 5))
    with open_reader(tmp_path) as reader:
        found = reader.find("t/a", SOURCE_A, 4, 8)
        assert [entry.head.first for entry in found] == [1, 6]
        assert bytes(reader.fetch(found[1])) == bytes(batch(6, 5).data)
        keep(journal, batch(11, 5))
        assert [entry.head.first for entry in reader.find("t/a", SOURCE_A, 9, 99)] == [6, 11]
    journal.close()


def test_a_reader_has_the_ledger_as_of_now(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    keep(journal, batch(1, 10))
    with open_reader(tmp_path) as reader:
        for seq in range(1, 11):
            row = OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)
            journal.stage_record(Outcomes("audit", [row]))
            journal.commit()
            if seq in (3, 7):
                journal.checkpoint()
            assert reader.ledger.rows() == journal.ledger.rows()
            assert reader.status().events == 10
        records, after = reader.records(0)
        assert (len(records), after) == (11, journal.end)
    journal.close()


def test_a_reader_is_told_what_retention_removed(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, Retention(count_max=10))
    for first in range(1, 101):
        keep(journal, batch(first))
    with open_reader(tmp_path) as reader:
        assert reader.first_held("t/a", SOURCE_A) == 1
        assert len(entries(reader)) == 100
        removed = journal.trim()
        keep(journal, batch(101))
        assert removed == [Removed("t/a", SOURCE_A, 1, removed[0].stop)]
        assert reader.first_held("t/a", SOURCE_A) == removed[0].stop
        with pytest.raises(Gone) as told:
            reader.read(0)
        assert told.value.first_held == journal.start
        assert spans(entries(reader, journal.start)) == spans(entries(journal))
    journal.close()


def test_times_are_found_by_a_reader(tmp_path: Path) -> None:
    clock_us = 1_000_000

    def now_us() -> int:
        return clock_us

    journal = DiskJournal(tmp_path, now_us=now_us, mark_us=0)
    positions = {}
    for first in range(1, 20):
        clock_us += 10
        positions[clock_us] = keep(journal, batch(first))
    journal.checkpoint()
    with open_reader(tmp_path) as reader:
        assert all(reader.position_at(time_us) == position for time_us, position in positions.items())
    journal.close()


def test_two_readers_share_a_process(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    keep(journal, batch(1))
    one, two = open_reader(tmp_path), open_reader(tmp_path)
    one.close()
    assert len(entries(two)) == 1
    two.close()
    with pytest.raises(Closed):
        two.read(0)
    journal.close()


def test_a_journal_that_nobody_writes_can_be_read(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for first in range(1, 50):
        keep(journal, batch(first), batch(2 * first - 1, 2, "t/b", SOURCE_B))
    held, end = spans(entries(journal)), journal.end
    journal.close()
    with open_reader(tmp_path) as reader:
        assert (spans(entries(reader)), reader.end) == (held, end)
        assert [entry.head.first for entry in reader.find("t/b", SOURCE_B, 4, 6)] == [3, 5]


def test_a_reader_of_a_killed_journal_sees_what_opening_it_would_keep(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "made")
    for first in range(1, 50):
        keep(journal, batch(first))
        if first == 20:
            journal.checkpoint()
    held, end = spans(entries(journal)), journal.end
    shutil.copytree(tmp_path / "made", tmp_path / "killed")
    journal.close()
    with open_reader(tmp_path / "killed") as reader:
        assert (spans(entries(reader)), reader.end) == (held, end)
        assert reader.ledger.published["t/a", SOURCE_A].ranges() == [(1, 50)]
    (tmp_path / "killed" / "end").write_bytes(bytes(4_096))
    with open_reader(tmp_path / "killed") as reader:
        assert spans(entries(reader)) == held


def test_a_reader_needs_the_shared_end(tmp_path: Path) -> None:
    open_journal(tmp_path).close()
    (tmp_path / "end").unlink()
    with pytest.raises(JournalError, match="the shared end can't be read"):
        open_reader(tmp_path)


def test_there_is_no_reader_where_there_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal"):
        open_reader(tmp_path)


@pytest.mark.real
def test_another_process_reads_while_this_one_writes(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    keep(journal, batch(1))
    code = f"""
from reknit.store.reader import open_reader
reader = open_reader({str(tmp_path)!r})
position, expected = 0, 1
print("open", flush=True)
while expected <= 300:
    run = reader.read(position)
    for entry in run.entries:
        assert entry.head.first == expected, (entry, expected)
        expected += 1
    position = run.next_position
assert len(reader.find("t/a", b"a" * 16, 1, 301)) == 300
print(position, flush=True)
"""
    with start_tied([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for first in range(2, 301):
            keep(journal, batch(first))
            if first % 40 == 0:
                journal.checkpoint()
        assert process.stdout.read().strip() == str(journal.end)
    assert process.returncode == 0
    journal.close()

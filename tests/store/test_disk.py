"""The parts that only a journal on disk has: locks, files, its index."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reknit.errors import JournalError, JournalLocked
from reknit.fields import SeriesRange
from reknit.outcome import FinalOutcome
from reknit.records import LossesKnown, OutcomeRow, Outcomes, SubscriberOpened
from reknit.seqset import SeqSet
from reknit.store.directory.layout import Layout
from reknit.store.disk import DiskJournal
from reknit.store.index.index import Index
from reknit.store.log.retention import Retention
from reknit.store.log.segment_files import segment_path, segment_starts
from tests.store.journals import SOURCE_A, SOURCE_B, batch, entries, keep, stage


def test_a_second_writer_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    with pytest.raises(JournalLocked, match=f"in use by process {os.getpid()}.*open a reader"):
        DiskJournal(tmp_path)
    journal.close()
    DiskJournal(tmp_path).close()


@pytest.mark.real
def test_the_lock_goes_with_the_process_that_had_it(tmp_path: Path) -> None:
    code = (
        f"from reknit.store.disk import DiskJournal; import os; DiskJournal({str(tmp_path)!r}); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    DiskJournal(tmp_path).close()


def test_a_journal_keeps_its_id(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path / "one")
    first = journal.id
    journal.close()
    again, other = DiskJournal(tmp_path / "one"), DiskJournal(tmp_path / "two")
    assert again.id == first != other.id
    again.close()
    other.close()


def test_a_directory_of_another_format_is_refused(tmp_path: Path) -> None:
    DiskJournal(tmp_path).close()
    (tmp_path / "journal.json").write_text('{"format": 99, "id": "x"}')
    with pytest.raises(JournalError, match="format 99"):
        DiskJournal(tmp_path)


def test_files_are_allocated_ahead_and_cut_on_closing(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path, preallocate_bytes=1 << 16)
    keep(journal, batch(1))
    path = segment_path(tmp_path / "log", 0)
    assert path.stat().st_size == 1 << 16
    end = journal.end
    journal.close()
    assert path.stat().st_size == end


def test_a_finished_file_is_cut_to_its_size(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path, segment_bytes=500, preallocate_bytes=1 << 16)
    for first in range(1, 30):
        keep(journal, batch(first))
    starts = segment_starts(tmp_path / "log")
    sizes = [segment_path(tmp_path / "log", start).stat().st_size for start in starts]
    assert [start + size for start, size in zip(starts[:-1], sizes[:-1], strict=True)] == starts[1:]
    journal.close()


def test_nothing_is_replayed_after_a_clean_close(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    keep(journal, batch(1))
    journal.close()
    again = DiskJournal(tmp_path)
    assert (again.report.clean, again.report.replayed_bytes) == (True, 0)
    assert str(again.report) == "closed cleanly"
    again.close()


def test_the_index_holds_what_is_kept_and_no_more(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    keep(journal, batch(1))
    assert journal.checkpoint() == journal.end
    stage(journal, batch(2))
    assert journal.checkpoint() == journal.end == journal.staged_end
    assert journal.status().indexed_to == journal.end
    stage(journal, batch(3))
    assert journal.status().indexed_to == journal.end < journal.staged_end
    journal.close()


def test_a_checkpoint_leaves_nothing_of_the_index_in_memory(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    for first in range(1, 100):
        keep(journal, batch(first), batch(first, source=SOURCE_B))
    journal.checkpoint()
    assert journal.state.series.fresh == []
    assert [series.extents for series in journal.state.series] == [[], []]
    journal.close()


def test_the_map_of_the_index_grows_by_itself(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.create()
    Index(layout.index, map_bytes=1 << 16).close()
    journal = DiskJournal(tmp_path, index_map_bytes=1 << 16, segment_bytes=4_096)
    for first in range(1, 3_000):
        stage(journal, batch(first, topic=f"t/{first}"))
        if first % 500 == 0:
            journal.checkpoint()
    journal.checkpoint()
    assert (layout.index / "data.mdb").stat().st_size > 1 << 16
    assert [entry.head.first for entry in journal.find("t/2999", SOURCE_A, 2_999, 3_000)] == [2_999]
    journal.close()


def test_small_bytes_to_keep_make_small_files(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path, Retention(bytes_max=40_000))
    for first in range(1, 600):
        keep(journal, batch(first))
    journal.trim()
    assert journal.end - journal.start <= 40_000
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) <= 40_000 + (16 << 20)
    journal.close()


def test_many_commits_of_small_runs_become_few_larger_ones(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    for first in range(1, 200):
        stage(journal, batch(first))
    journal.commit()
    run = journal.read(0)
    assert len(run.entries) == 199
    journal.close()


def test_the_very_bytes_that_were_staged_are_read(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    one = batch(1, 10_000)
    keep(journal, one)
    assert journal.read(0).data.obj is one.data or bytes(one.data) == bytes(journal.read(0).data)
    data = bytes(one.data)
    journal.stage(data, [one.head])
    journal.commit()
    assert journal.read(len(data)).data.obj is data
    journal.close()


def test_what_was_not_closed_is_replayed_from_the_last_checkpoint(tmp_path: Path) -> None:
    code = f"""
import os
from reknit.store.disk import DiskJournal
from tests.store.journals import batch, keep, stage
journal = DiskJournal({str(tmp_path)!r})
keep(journal, batch(1))
journal.checkpoint()
keep(journal, batch(2), batch(3))
stage(journal, batch(4))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    journal = DiskJournal(tmp_path)
    assert [entry.head.first for entry in entries(journal)] == [1, 2, 3]
    report = journal.report
    assert (report.clean, report.replayed_batches, report.lost, report.missing_bytes) == (False, 2, (), 0)
    assert "replayed 2 batches and 0 records" in str(report)
    journal.close()


def test_losses_stay_in_the_index_until_the_subscriber_knows_of_them(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    lost = OutcomeRow("t/a", SOURCE_A, 2, 9, FinalOutcome.LOST, reason="damaged")
    journal.stage_record(Outcomes("audit", [lost]))
    journal.close()
    journal = DiskJournal(tmp_path)
    journal.stage_record(LossesKnown("audit", [SeriesRange("t/a", SOURCE_A, 1, 5)]))
    journal.close()
    journal = DiskJournal(tmp_path)
    losses = journal.ledger.accounts["audit"].losses
    assert losses == {("t/a", SOURCE_A): {"damaged": SeqSet.from_ranges([(5, 9)])}}
    journal.stage_record(LossesKnown("audit", [SeriesRange("t/a", SOURCE_A, 5, 9)]))
    assert not losses
    journal.close()


def test_closing_an_account_takes_its_rows_out_of_the_index(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    journal.stage_record(SubscriberOpened.at("audit", "**", {("t/a", SOURCE_A): 5}, 3, 1))
    journal.checkpoint()
    journal.close()
    again = DiskJournal(tmp_path)
    account = again.ledger.accounts["audit"]
    assert (account.since, account.floor, account.pattern.text) == ({("t/a", SOURCE_A): 5}, 3, "**")
    again.close()


def test_trimming_without_waiting_leaves_the_index_to_the_next_checkpoint(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path, Retention(count_max=50), segment_bytes=4096)
    for first in range(1, 301):
        keep(journal, batch(first))
    assert journal.trim(waits=False) == [], "the index does not cover the oldest segment yet"
    assert journal.is_save_wanted
    journal.checkpoint()
    assert journal.trim(waits=False) != []
    assert not journal.is_save_wanted
    journal.close()


def test_trimming_without_waiting_comes_again_while_the_index_is_being_saved(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path, Retention(count_max=50), segment_bytes=4096)
    for first in range(1, 301):
        keep(journal, batch(first))
    journal.checkpoint()
    is_saving, is_done = threading.Event(), threading.Event()

    def save() -> None:
        with journal._checkpointer.lock:
            is_saving.set()
            is_done.wait()

    thread = threading.Thread(target=save)
    thread.start()
    is_saving.wait()
    assert journal.trim(waits=False) == []
    is_done.set()
    thread.join()
    assert journal.trim(waits=False) != []
    journal.close()

"""Backups of a journal that is in use, and journals that are restored from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reknit.errors import JournalError
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.directory.backup import back_up, restore
from reknit.store.disk import DiskJournal
from reknit.store.log.retention import Retention
from reknit.store.log.segment_files import segment_path, segment_starts
from tests.store.journals import SOURCE_A, batch, entries, spans, stage


def open_journal(directory: Path, retention: Retention | None = None) -> DiskJournal:
    return DiskJournal(directory, retention, segment_bytes=2_000, preallocate_bytes=4_096)


def put(journal: DiskJournal, first: int, stop: int) -> None:
    for seq in range(first, stop):
        stage(journal, batch(seq))
        row = OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)
        journal.stage_record(Outcomes("audit", [row]))
        journal.commit()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    return tmp_path / "data", tmp_path / "backup", tmp_path / "restored"


def test_a_restored_journal_has_what_the_backup_had_and_the_ledger(places: tuple[Path, Path, Path]) -> None:
    data, backup, restored = places
    journal = open_journal(data)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    put(journal, 1, 40)
    journal.checkpoint()
    put(journal, 40, 50)
    held, end = spans(entries(journal)), journal.end
    assert back_up(data, backup).events == 49
    put(journal, 50, 60)
    restore(backup, restored)
    again = open_journal(restored)
    assert (spans(entries(again)), again.end) == (held, end)
    (row,) = again.ledger.rows()
    assert (row.accepted, row.balanced) == (49, True)
    assert again.id != journal.id
    assert again.origin == journal.id
    again.close()
    journal.close()


def test_a_journal_without_a_segment_is_backed_up_and_restored(places: tuple[Path, Path, Path]) -> None:
    data, backup, restored = places
    open_journal(data).close()
    for start in segment_starts(data / "log"):
        segment_path(data / "log", start).unlink()
    assert (back_up(data, backup).events, back_up(data, backup).copied_bytes) == (0, 0)
    restore(backup, restored)
    again = open_journal(restored)
    assert entries(again) == []
    again.close()


def test_a_second_backup_copies_only_what_is_new(places: tuple[Path, Path, Path]) -> None:
    data, backup, _ = places
    journal = open_journal(data)
    put(journal, 1, 40)
    first, end = back_up(data, backup), journal.end
    put(journal, 40, 50)
    second = back_up(data, backup)
    assert (first.copied_bytes, second.copied_bytes) == (end, journal.end - end)
    assert back_up(data, backup).copied_bytes == 0
    journal.close()
    assert back_up(data, backup).copied_bytes == 0


def test_a_backup_of_a_killed_node_continues_after_its_restart(places: tuple[Path, Path, Path]) -> None:
    data, backup, _ = places
    journal = open_journal(data)
    put(journal, 1, 10)
    killed = data.with_name("killed")
    shutil.copytree(data, killed)  # with preallocated zeros behind the last frame
    journal.close()
    back_up(killed, backup)
    again = open_journal(killed)
    put(again, 10, 30)
    assert back_up(killed, backup).events == 29
    again.close()


def test_segments_that_retention_removed_leave_the_backup_too(places: tuple[Path, Path, Path]) -> None:
    data, backup, restored = places
    journal = open_journal(data, Retention(bytes_max=8_000))
    put(journal, 1, 60)
    back_up(data, backup)
    put(journal, 60, 90)
    journal.trim()
    back_up(data, backup)
    assert segment_starts(backup / "log") == segment_starts(data / "log")
    restore(backup, restored)
    again = open_journal(restored)
    assert (again.start, spans(entries(again))) == (journal.start, spans(entries(journal)))
    again.close()
    journal.close()


def test_the_log_of_an_interrupted_backup_can_be_restored(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, backup, restored = places
    journal = open_journal(data)
    put(journal, 1, 20)
    back_up(data, backup)
    put(journal, 20, 40)
    journal.checkpoint()

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("reknit.store.directory.backup._swap", interrupt)
        with pytest.raises(KeyboardInterrupt):
            back_up(data, backup)
    restore(backup, restored)
    again = open_journal(restored)
    assert again.sources("t/a") == {SOURCE_A: 39}
    again.close()
    assert back_up(data, backup).events == 39
    journal.close()


def test_a_damaged_backup_is_not_restored(places: tuple[Path, Path, Path]) -> None:
    data, backup, restored = places
    journal = open_journal(data)
    put(journal, 1, 20)
    journal.close()
    back_up(data, backup)
    path = segment_path(backup / "log", 0)
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match="the backup is damaged"):
        restore(backup, restored)
    assert not restored.exists()


def test_a_backup_is_never_continued_with_a_restored_journal(places: tuple[Path, Path, Path]) -> None:
    data, backup, restored = places
    journal = open_journal(data)
    put(journal, 1, 20)
    journal.close()
    back_up(data, backup)
    restore(backup, restored)
    with pytest.raises(JournalError, match="not of the journal"):
        back_up(restored, backup)


def test_neither_command_touches_other_files(places: tuple[Path, Path, Path]) -> None:
    data, backup, restored = places
    open_journal(data).close()
    for place in (backup, restored):
        place.mkdir()
        (place / "letter.txt").write_text("dear")
    with pytest.raises(JournalError, match="neither empty nor a backup"):
        back_up(data, backup)
    with pytest.raises(JournalError, match="not empty"):
        restore(data, restored)

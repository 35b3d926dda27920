"""A verification finds every kind of damage, changes nothing, and works beside a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reknit.entries import Entry
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes
from reknit.store.directory import verification
from reknit.store.directory.verification import verify_journal
from reknit.store.disk import DiskJournal
from reknit.store.log.segment_files import segment_path, segment_starts
from tests.store.journals import SOURCE_A, batch, entries, keep

LAST = 60


@pytest.fixture
def made(tmp_path: Path) -> list[Entry]:
    journal = DiskJournal(tmp_path, segment_bytes=3_000, preallocate_bytes=4_096)
    fill(journal)
    found = entries(journal)
    journal.close()
    return found


def fill(journal: DiskJournal) -> None:
    for seq in range(1, LAST + 1):
        keep(journal, batch(seq))
        row = OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)
        journal.stage_record(Outcomes("audit", [row]))
        journal.commit()


def flip(directory: Path, position: int) -> None:
    start = max(one for one in segment_starts(directory / "log") if one <= position)
    with segment_path(directory / "log", start).open("r+b") as file:
        file.seek(position - start)
        byte = file.read(1)[0]
        file.seek(position - start)
        file.write(bytes([byte ^ 0x5A]))


def content(directory: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "lock.mdb"]
    return {str(path): path.read_bytes() for path in paths}


def test_a_sound_journal_is_counted(tmp_path: Path, made: list[Entry]) -> None:
    found = verify_journal(tmp_path)
    assert found.is_sound
    assert not found.is_in_use
    assert (found.batches, found.events, found.records) == (LAST, LAST, LAST)
    assert found.bytes == sum(path.stat().st_size for path in (tmp_path / "log").iterdir())


def test_every_damage_is_found_and_nothing_is_changed(tmp_path: Path, made: list[Entry]) -> None:
    hurt = [made[3], made[4], made[20], made[22], made[-1]]
    for entry in hurt:
        flip(tmp_path, entry.end - 1)
    before = content(tmp_path)
    found = verify_journal(tmp_path)
    assert {one.position for one in hurt} <= {
        entry.position for entry in made for one in found.damages if one.position <= entry.position < one.stop
    }
    assert found.events >= LAST - len(hurt) - 2
    assert not found.is_sound
    assert content(tmp_path) == before


def test_files_that_are_missing_or_cut_short_are_found(tmp_path: Path, made: list[Entry]) -> None:
    starts = segment_starts(tmp_path / "log")
    segment_path(tmp_path / "log", starts[1]).unlink()
    cut = next(one for one in made if one.position > starts[2])
    os.truncate(segment_path(tmp_path / "log", starts[2]), cut.position - starts[2])
    found = verify_journal(tmp_path).damages
    assert [(one.position, one.stop, one.why) for one in found] == [
        (starts[1], starts[2], "the file is missing"),
        (cut.position, starts[3], "the file is cut off"),
    ]


def test_a_damaged_index_is_found(tmp_path: Path, made: list[Entry]) -> None:
    path = tmp_path / "index" / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"t/a", b"t/b"))
    found = verify_journal(tmp_path)
    assert found.index_damage
    assert found.damages == ()
    assert not found.is_sound


def test_a_journal_in_use_is_checked_up_to_its_end(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path, segment_bytes=3_000, preallocate_bytes=4_096)
    fill(journal)
    found = verify_journal(tmp_path)
    assert found.is_sound
    assert found.is_in_use
    assert found.events == LAST
    flip(tmp_path, entries(journal)[10].end - 1)
    assert len(verify_journal(tmp_path).damages) == 1
    journal.close()


def test_progress_reaches_the_total(
    tmp_path: Path, made: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "PROGRESS_BYTES", 1_000)
    steps: list[tuple[int, int]] = []
    found = verify_journal(tmp_path, lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert len(steps) > 5
    assert steps[-1] == (found.bytes, found.bytes)

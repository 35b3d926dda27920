"""A journal's files with a damaged part, as Spark tasks read them: a gap, and everything around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reknit.entries import Entry
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes
from reknit.spark.source.log_files import LogFiles
from reknit.store.directory import opening
from reknit.store.disk import DiskJournal
from reknit.store.log.segment_files import segment_path, segment_starts
from reknit.store.reader import open_reader
from tests.store.journals import SOURCE_A, batch, entries, keep

LAST = 60


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    monkeypatch.setattr(opening, "VERIFIED_BYTES", 8)
    journal = DiskJournal(tmp_path, segment_bytes=3_000, preallocate_bytes=4_096)
    for seq in range(1, LAST + 1):
        row = OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)
        journal.stage_record(Outcomes("audit", [row]))
        keep(journal, batch(seq))
    found = entries(journal)
    journal.close()
    return found


def overwrite(directory: Path, position: int, data: bytes) -> None:
    start = max(one for one in segment_starts(directory / "log") if one <= position)
    with segment_path(directory / "log", start).open("r+b") as file:
        file.seek(position - start)
        file.write(data)


@pytest.mark.parametrize("offset", [0, 4, 20, 90])
def test_damaged_batch_is_a_gap(tmp_path: Path, made: list[Entry], offset: int) -> None:
    entry = made[14]
    overwrite(tmp_path, entry.position + offset, b"\xa5" * 4)
    records: list[tuple[int, memoryview]] = []
    positions: list[int] = []
    for frames in LogFiles(tmp_path).frames(0, made[-1].end, records):
        positions += frames.positions().tolist()
    assert positions == [one.position for one in made if one is not entry]
    assert len({position for position, _ in records}) == len(records) == LAST


LENGTH_AT = 4
DAMAGE: dict[str, Callable[[Entry], tuple[int, bytes]]] = {
    "no frame": lambda entry: (0, bytes(8)),
    "a longer frame, which ends inside of the next": lambda entry: (
        LENGTH_AT,
        bytes([entry.head.length + 74 & 0xFF]),
    ),
    "a frame that ends where the next one does": lambda entry: (
        LENGTH_AT,
        bytes([2 * entry.head.length & 0xFF]),
    ),
    "other content": lambda entry: (entry.head.length - 1, b"\xa5"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_split_points_of_a_damaged_log_are_those_of_the_rest(
    tmp_path: Path, made: list[Entry], damage: str
) -> None:
    entry = made[14]
    offset, data = DAMAGE[damage](entry)
    overwrite(tmp_path, entry.position + offset, data)
    found = list(LogFiles(tmp_path).split_points(0, made[-1].end, 0, 1))
    marks = [mark for one in found for mark in one.marks]
    assert marks == [one.position for one in made if one is not entry]
    assert sum(one.events for one in found) == LAST - 1
    with open_reader(tmp_path) as reader:
        for one in found:  # a query goes on there
            reader.read(one.next, made[-1].end)

"""An index that was cut, overwritten or has flipped bits is found out on opening, and rebuilt from the log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.errors import JournalCorrupt
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.disk import DiskJournal
from reknit.store.index.lmdb_environment import MAP_BYTES
from reknit.store.index.lmdb_pages import damage_of
from reknit.store.index.rows import UNSEALED_FORMAT, decode_state, encode
from reknit.store.log.retention import Retention
from reknit.store.reader import open_reader
from tests.store.journals import SOURCE_A, batch, entries, keep, spans

LAST = 120

Facts = tuple[object, ...]


def fill(directory: Path) -> None:
    journal = DiskJournal(directory, segment_bytes=4_000, preallocate_bytes=4_096)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    for seq in range(1, LAST + 1):
        keep(journal, batch(seq, topic=f"t/{seq % 30}"))
        row = OutcomeRow(f"t/{seq % 30}", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)
        journal.stage_record(Outcomes("audit", [row]))
        if seq % 10 == 0:
            journal.checkpoint()
    journal.close()


def facts(journal: DiskJournal) -> Facts:
    """Everything that the index and the log say."""
    status = journal.status()
    return (
        spans(entries(journal)),
        (status.events, status.bytes, status.end),
        {topic: journal.sources(topic) for topic in journal.topics()},
        [(row.topic, row.published, row.accepted, row.balanced) for row in journal.ledger.rows()],
        [spans(journal.find(f"t/{number}", SOURCE_A, 1, LAST + 1)) for number in range(30)],
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    directory = tmp_path_factory.mktemp("made") / "journal"
    fill(directory)
    journal = DiskJournal(directory)
    assert journal.report.clean
    found = facts(journal)
    journal.close()
    return directory, found


def check_rebuilt(directory: Path, found: Facts) -> DiskJournal:
    journal = DiskJournal(directory)
    assert facts(journal) == found
    journal.close()
    again = DiskJournal(directory)
    assert again.report.clean
    assert facts(again) == found
    again.close()
    return journal


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_within_a_page(path: Path) -> None:
    os.truncate(path, 4_096 + 100)


def scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 997):
        data[at] ^= 0x5A
    path.write_bytes(data)


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xff" * 8_192)


def empty_pages(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:8_192].ljust(path.stat().st_size, b"\0"))


@pytest.mark.parametrize("harm", [cut, cut_within_a_page, scramble, overwrite, empty_pages])
def test_a_damaged_index_is_rebuilt_and_kept_aside(
    made: tuple[Path, Facts], tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory = shutil.copytree(made[0], tmp_path / "journal")
    harm(directory / "index" / "data.mdb")
    report = check_rebuilt(directory, made[1]).report
    assert "the index was damaged" in str(report)
    assert "rebuilt from the log" in str(report)
    assert Path(report.index_aside, "data.mdb").exists()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_flipped_byte_of_the_index_changes_nothing(
    made: tuple[Path, Facts], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("flipped") / "journal"
    shutil.copytree(made[0], directory)
    path = directory / "index" / "data.mdb"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    check_rebuilt(directory, made[1])


FIRST_PAGE = [
    pytest.param(22, 1, id="version"),
    pytest.param(38, 1, id="size of the map"),
    pytest.param(92, 2, id="kind of the databases"),
    pytest.param(140, 0x80, id="last page"),
    pytest.param(143, 1, id="last page, beyond any map"),
]


@pytest.mark.parametrize(("at", "flip"), FIRST_PAGE)
def test_a_field_of_the_first_page_that_lmdb_trusts_is_checked(
    made: tuple[Path, Facts], tmp_path: Path, at: int, flip: int
) -> None:
    directory = shutil.copytree(made[0], tmp_path / "journal")
    path = directory / "index" / "data.mdb"
    content = bytearray(path.read_bytes())
    content[at] ^= flip
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match="start the node, which rebuilds it"):
        open_reader(directory)
    assert check_rebuilt(directory, made[1]).report.index_aside


def test_a_reader_refuses_a_damaged_index_and_says_what_to_do(
    made: tuple[Path, Facts], tmp_path: Path
) -> None:
    directory = shutil.copytree(made[0], tmp_path / "journal")
    cut(directory / "index" / "data.mdb")
    with pytest.raises(JournalCorrupt, match="start the node, which rebuilds it"):
        open_reader(directory)


def test_a_report_says_that_knowledge_of_removed_events_is_lost(tmp_path: Path) -> None:
    fill(tmp_path)
    journal = DiskJournal(tmp_path, Retention(count_max=20), segment_bytes=4_000)
    assert journal.trim()
    journal.close()
    cut(tmp_path / "index" / "data.mdb")
    journal = DiskJournal(tmp_path)
    assert "what it knew of events that retention removed is lost" in str(journal.report)
    journal.close()


def test_no_damage_is_found_in_an_index_that_is_in_use(tmp_path: Path) -> None:
    """Free pages, long rows and deep trees are as LMDB writes them."""
    journal = DiskJournal(tmp_path, Retention(count_max=400), segment_bytes=4_000)
    for seq in range(1, 1_500):
        keep(
            journal,
            batch(3 * seq, topic=f"a/rather/long/topic/{seq}"),
            batch(3 * seq, source=b"%016d" % (seq % 7)),
        )
        if seq % 50 == 0:
            journal.checkpoint()
            journal.trim()
            assert damage_of(tmp_path / "index" / "data.mdb") == ""
    journal.close()


def test_no_damage_is_found_in_an_index_that_ends_with_pages_that_were_never_written(tmp_path: Path) -> None:
    """LMDB leaves out those that a transaction made and removed again. They are free."""
    path = tmp_path / "data.mdb"
    with lmdb.open(str(tmp_path), map_size=MAP_BYTES, max_dbs=1) as env:
        db = env.open_db(b"rows")
        for size in (300, 9_000) * 3:
            keys = [b"%d" % number for number in range(50)]
            with env.begin(write=True) as txn:
                for key in keys:
                    txn.put(key, bytes(size), db=db)
                for key in keys[10:]:
                    txn.delete(key, db=db)
            assert damage_of(path) == ""
        pages = env.info()["last_pgno"] + 1
        assert path.stat().st_size < pages * env.stat()["psize"]


def test_an_index_without_checksums_gets_them(made: tuple[Path, Facts], tmp_path: Path) -> None:
    directory = shutil.copytree(made[0], tmp_path / "journal")
    with lmdb.open(str(directory / "index"), max_dbs=16) as env:
        names = [key for key, _ in env.begin().cursor()]
        for name in names:
            db = env.open_db(name)
            with env.begin(write=True) as txn:
                for key, row in list(txn.cursor(db=db)):
                    row = row[:-8]
                    if name == b"meta":
                        state = decode_state(row)
                        row = encode([UNSEALED_FORMAT, state.indexed_to, state.start, state.paused])
                    txn.put(key, row, db=db)
    journal = DiskJournal(directory)
    assert journal.report.clean
    assert facts(journal) == made[1]
    journal.close()
    scramble(directory / "index" / "data.mdb")
    check_rebuilt(directory, made[1])

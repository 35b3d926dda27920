"""Damage that `make fuzz` found to be handled wrongly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reknit.errors import JournalCorrupt, JournalError
from reknit.store.index.index import Index
from reknit.store.index.rows import NUMBER, RowDamaged
from reknit.store.log.segment_files import segment_path, segment_starts
from reknit.store.reader import open_reader
from tests.store.journals import entries, spans
from tests.store.test_damage import Template, make_template, open_journal, repaired


@pytest.fixture(scope="module", params=["closed", "killed"])
def pieces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A journal in many small files."""
    return make_template(tmp_path_factory.mktemp("pieces"), 3_000, request.param == "closed")


def test_a_missing_file_before_files_that_the_index_does_not_know_is_refused(pieces: Template) -> None:
    """It opened without a word, and was refused when it was opened again."""
    with pieces.copied() as directory:
        starts = segment_starts(directory / "log")
        known = [one for one in starts if one < pieces.end // 2]
        segment_path(directory / "log", known[-1]).unlink()
        with pytest.raises(JournalCorrupt, match="missing"):
            open_journal(directory)
        journal = repaired(directory)
        held = spans(entries(journal))
        journal.close()
        again = open_journal(directory)
        assert spans(entries(again)) == held
        again.close()


def test_events_before_empty_files_at_the_end_are_served(pieces: Template) -> None:
    """The first of them was passed over, and reading stopped there with an AssertionError."""
    with pieces.copied() as directory:
        starts = segment_starts(directory / "log")
        for start in starts[-2:]:
            os.truncate(segment_path(directory / "log", start), 0)
        for _ in range(2):
            journal = open_journal(directory)
            assert spans(entries(journal)) == spans(
                [one for one in pieces.entries if one.position < starts[-2]]
            )
            journal.close()


def test_a_reader_that_can_not_read_the_index_closes_it(pieces: Template) -> None:
    """It left the index open, so that the same process could not open the journal any more."""
    with pieces.copied() as directory:
        index = Index(directory / "index")
        with index._environment.lmdb.begin(write=True) as txn:
            txn.put(NUMBER.pack(1), b"not a row", db=index._dbs["segments"])
        index.close()
        with pytest.raises(JournalError):
            open_reader(directory)
        journal = open_journal(directory)
        assert journal.report.index_damage
        journal.close()


def test_a_key_of_the_index_that_is_none_is_damage(tmp_path: Path) -> None:
    index = Index(tmp_path)
    with index._environment.lmdb.begin(write=True) as txn:
        txn.put(b"\0", b"x", db=index._dbs["places"])
        txn.put(b"\xff", b"x", db=index._dbs["places"])
    for look in (lambda: index.place_before(9), lambda: index.place_after(9), lambda: index.places(9, 10)):
        with pytest.raises(RowDamaged):
            look()
    index.close()

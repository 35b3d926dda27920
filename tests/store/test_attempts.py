"""The journal stores attempts: they survive a checkpoint, a replay and a repair, and older indexes can be read."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from reknit.attempts import AttemptCount
from reknit.batch import Batch
from reknit.outcome import FinalOutcome, Outcome
from reknit.records import AttemptRow, Attempts, OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.directory.repair import repair
from reknit.store.disk import DiskJournal
from reknit.store.reader import open_reader

SOURCE = b"s" * 16
STREAM = ("plant/a", SOURCE)


def attempts(start: int, stop: int, acquired: int, failed: int) -> Attempts:
    return Attempts(
        "audit", [AttemptRow(*STREAM, start, stop, acquired, failed, Outcome.FAILED, 14, acquired)]
    )


def tried(journal_dir: Path) -> dict[int, tuple[int, int, int]]:
    """By seq: acquired, failed, and how many attempts are known one by one."""
    journal = DiskJournal(journal_dir)
    tallies: dict[int, AttemptCount] = journal.ledger.accounts["audit"].tallies.get(STREAM, {})
    journal.close()
    return {seq: (one.acquired, one.failed, len(one.tries)) for seq, one in tallies.items()}


def write(journal: DiskJournal, is_saved: bool) -> None:
    batch = Batch.build(SOURCE, "plant/a", 1, [b"x"] * 3, 0)
    journal.stage_record(SubscriberOpened("audit", "plant/**", [], 0, 0))
    journal.stage(bytes(batch.data), [batch.head])
    journal.stage_record(attempts(1, 4, 1, 1))
    if is_saved:
        journal.checkpoint()
    journal.stage_record(attempts(2, 3, 2, 1))
    journal.stage_record(Outcomes("audit", [OutcomeRow(*STREAM, 3, 4, FinalOutcome.ACCEPTED)]))
    journal.commit()


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
def test_attempts_are_there_after_opening(tmp_path: Path, is_saved: bool, is_closed: bool) -> None:
    journal = DiskJournal(tmp_path)
    write(journal, is_saved)
    if is_closed:
        journal.close()
    else:  # as after a kill: nothing is saved any more
        journal.files.index.close()
        journal.files.lock.release()
    expected = {1: (1, 1, 1), 2: (2, 1, 2)}
    assert tried(tmp_path) == expected
    assert tried(tmp_path) == expected


def test_attempts_survive_a_repair(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    write(journal, is_saved=True)
    journal.close()
    repair(tmp_path)
    assert tried(tmp_path) == {1: (1, 1, 1), 2: (2, 1, 2)}


def test_index_from_before_there_were_attempts_is_read(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    journal.stage_record(SubscriberOpened("audit", "plant/**", [], 0, 0))
    journal.close()
    [folder] = [path.parent for path in tmp_path.rglob("data.mdb")]
    with lmdb.open(str(folder), max_dbs=16) as env:
        for name in (b"tallies", b"letters"):
            db = env.open_db(name, create=False)
            with env.begin(write=True) as txn:
                txn.drop(db, delete=True)
    reader = open_reader(tmp_path)
    assert list(reader.ledger.accounts) == ["audit"]
    reader.close()
    assert tried(tmp_path) == {}

"""What a commit added is read once, and everybody who follows the journal gets the same runs."""

from __future__ import annotations

import pytest

from reknit.batch import Batch
from reknit.entries import Run
from reknit.errors import Gone
from reknit.node.core.journal_tail import JournalTail
from reknit.store.log.retention import Retention
from reknit.store.memory import MemoryJournal

SOURCE = b"s" * 16


class CountingJournal(MemoryJournal):
    """Counts how often it is read."""

    reads = 0

    def read(self, position: int, stop: int | None = None, max_bytes: int = 1 << 20) -> Run:
        self.reads += 1
        return super().read(position, stop, max_bytes)


def append(journal: MemoryJournal, first: int) -> int:
    batch = Batch.build(SOURCE, "plant/temp", first, [b"x"], time_us=0)
    journal.stage(batch.data, [batch.head])
    return journal.commit()


def test_followers_that_are_up_to_date_share_one_read() -> None:
    journal = CountingJournal()
    tail = JournalTail(journal)
    [run] = tail.advance(append(journal, 1))
    assert [tail.read(0) for _ in range(4)] == [run] * 4
    assert journal.reads == 1


def test_follower_that_is_behind_reads_on_its_own_until_it_has_caught_up() -> None:
    journal = CountingJournal()
    tail = JournalTail(journal)
    tail.advance(append(journal, 1))
    [second] = tail.advance(append(journal, 2))
    behind = tail.read(0)
    assert [entry.head.first for entry in behind.entries] == [1]
    assert tail.read(behind.next_position) is second
    assert journal.reads == 3


def test_nothing_is_passed_on_before_the_core_was_told_that_it_is_durable() -> None:
    journal = MemoryJournal()
    tail = JournalTail(journal)
    end = append(journal, 1)
    tail.advance(end)
    append(journal, 2)  # committed by the thread: the core will be told next
    tail.release()
    assert [entry.head.first for entry in tail.read(0).entries] == [1]
    assert not tail.read(end).entries
    assert tail.end == end


def test_released_runs_are_read_again() -> None:
    journal = CountingJournal()
    tail = JournalTail(journal)
    tail.advance(append(journal, 1))
    tail.release()
    assert [entry.head.first for entry in tail.read(0).entries] == [1]
    assert journal.reads == 2


def test_position_that_retention_removed_is_gone() -> None:
    journal = MemoryJournal(Retention(count_max=1), segment_bytes=1)
    tail = JournalTail(journal)
    for first in range(1, 4):
        tail.advance(append(journal, first))
    journal.trim()
    with pytest.raises(Gone):
        tail.read(0)

"""A disk without room, and a disk that fails: intake stops, nothing that was kept is lost, it goes on by itself."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reknit.environment import DiskFiles
from reknit.errors import JournalError, JournalFull
from reknit.frame import Buffer
from reknit.records import SubscriberOpened
from reknit.store.directory.verification import verify_journal
from reknit.store.disk import DiskJournal
from reknit.store.log.retention import Retention
from reknit.store.log.segment_files import segment_path, segment_starts
from tests.store.journals import SOURCE_A, batch, entries, keep, stage


class SmallDisk(DiskFiles):
    """Has room for so many bytes of writing; the write that does not fit is done in part."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sync_error = 0
        self.truncates = True

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = b"".join(buffers)[: self.room]
        self.room -= len(data)
        return os.pwrite(fd, data, offset)

    def fallocate(self, fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fdatasync(self, fd: int) -> None:
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        os.fdatasync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        if not self.truncates:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, size)


def firsts(journal: DiskJournal) -> list[int]:
    return [entry.head.first for entry in entries(journal)]


def log_size(directory: Path) -> int:
    return sum(
        segment_path(directory / "log", start).stat().st_size for start in segment_starts(directory / "log")
    )


@pytest.mark.parametrize("room", [0, 1, 50, 95, 96, 200])
def test_what_does_not_fit_stays_staged_and_is_written_when_there_is_room(tmp_path: Path, room: int) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path, files=disk)
    keep(journal, batch(1))
    end = journal.end
    disk.room = room
    stage(journal, batch(2), batch(3), batch(4))
    with pytest.raises(JournalFull, match=r"no space left on device.*resumes by itself"):
        journal.commit()
    assert journal.end == end
    assert firsts(journal) == [1]
    assert log_size(tmp_path) == end, "half of a write was left behind"
    stage(journal, batch(5))
    disk.room = 1 << 20
    journal.commit()
    assert firsts(journal) == [1, 2, 3, 4, 5]
    journal.close()
    again = DiskJournal(tmp_path)
    assert (firsts(again), again.report.clean) == ([1, 2, 3, 4, 5], True)
    again.close()


def test_a_crash_on_a_full_disk_loses_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path, files=disk)
    keep(journal, batch(1))
    disk.room, disk.truncates = 150, False
    stage(journal, batch(2), batch(3), batch(4))
    with pytest.raises(JournalFull):
        journal.commit()
    with pytest.raises(JournalFull):
        journal.close()
    again = DiskJournal(tmp_path)
    assert again.report.cut_position is not None
    assert again.report.lost == ()
    assert firsts(again) == [1, 2]
    assert again.ledger.published["t/a", SOURCE_A].last == 2
    assert verify_journal(tmp_path).damages == ()
    again.close()


def test_what_is_staged_during_a_failed_write_stays_behind_it(tmp_path: Path) -> None:
    class Busy(SmallDisk):
        def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
            if not self.room:
                stage(journal, batch(3))
            return super().pwritev(fd, buffers, offset)

    disk = Busy(1 << 20)
    journal = DiskJournal(tmp_path, files=disk)
    stage(journal, batch(1), batch(2))
    disk.room = 0
    with pytest.raises(JournalFull):
        journal.commit()
    disk.room = 1 << 20
    journal.commit()
    assert firsts(journal) == [1, 2, 3]
    journal.close()


def test_what_a_killed_process_wrote_is_synced_before_it_is_served(tmp_path: Path) -> None:
    class Counting(SmallDisk):
        synced = 0

        def fdatasync(self, fd: int) -> None:
            self.synced += 1

    journal = DiskJournal(tmp_path / "made")
    stage(journal, batch(1))
    journal.commit(sync=False)
    shutil.copytree(tmp_path / "made", tmp_path / "killed")
    journal.close()
    disk = Counting(1 << 20)
    again = DiskJournal(tmp_path / "killed", files=disk)
    assert (disk.synced, firsts(again)) == (1, [1])
    again.close()


def test_intake_stops_at_the_limit_while_the_disk_is_full(tmp_path: Path) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path, files=disk, staged_bytes_max=1_000)
    disk.room = 0
    staged = 0
    while journal.staged_bytes + len(batch(staged + 1).data) <= 1_000:
        staged += 1
        stage(journal, batch(staged))
        with pytest.raises(JournalFull, match="no space left"):
            journal.commit()
    with pytest.raises(JournalFull, match="wait to be written"):
        stage(journal, batch(staged + 1))
    disk.room = 1 << 20
    journal.commit()
    assert firsts(journal) == list(range(1, staged + 1))
    journal.close()


def test_segments_written_before_the_disk_was_full_are_kept(tmp_path: Path) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path, files=disk, segment_bytes=300)
    for first in range(1, 21):
        stage(journal, batch(first))
    disk.room = 1_000
    with pytest.raises(JournalFull):
        journal.commit()
    held = firsts(journal)
    assert 0 < len(held) < 20
    assert held == list(range(1, len(held) + 1))
    disk.room = 1 << 20
    journal.commit()
    assert firsts(journal) == list(range(1, 21))
    journal.close()


def test_after_a_sync_that_failed_nothing_more_is_promised(tmp_path: Path) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path, files=disk)
    keep(journal, batch(1))
    disk.sync_error = errno.EIO
    stage(journal, batch(2))
    with pytest.raises(JournalError, match="open it again"):
        journal.commit()
    disk.sync_error = 0
    with pytest.raises(JournalError, match="open it again"):
        journal.commit()
    assert firsts(journal) == [1]
    with pytest.raises(JournalError):
        journal.close()
    again = DiskJournal(tmp_path)
    assert firsts(again) == [1]
    again.close()


def test_a_failed_checkpoint_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path, files=disk)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    stage(journal, batch(1))
    disk.room = 0
    with pytest.raises(JournalFull):
        journal.checkpoint()
    stage(journal, batch(2))
    disk.room = 1 << 20
    assert journal.checkpoint() == journal.end
    assert [entry.head.first for entry in journal.find("t/a", SOURCE_A, 1, 9)] == [1, 2]
    journal.close()
    again = DiskJournal(tmp_path)
    assert again.report.replayed_bytes == 0
    assert again.ledger.rows()[0].published == 2
    again.close()


def test_room_is_made_on_a_full_disk_without_saving_what_is_only_staged(tmp_path: Path) -> None:
    disk = SmallDisk(1 << 20)
    journal = DiskJournal(tmp_path / "made", Retention(count_max=10), segment_bytes=500, files=disk)
    for first in range(1, 51):
        keep(journal, batch(first))
    journal.checkpoint()
    disk.room = 0
    stage(journal, batch(51))
    (removed,) = journal.trim()
    assert removed.stop > 10
    assert firsts(journal) == list(range(removed.stop, 51))
    shutil.copytree(tmp_path / "made", tmp_path / "killed")
    disk.room = 1 << 20
    journal.close()
    again = DiskJournal(tmp_path / "killed")
    assert again.ledger.published["t/a", SOURCE_A].ranges() == [(1, 51)]
    assert (firsts(again), again.first_held("t/a", SOURCE_A)) == (list(range(removed.stop, 51)), removed.stop)
    again.close()


# -- a file system that is really full


@pytest.fixture
def tiny_file_system(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tiny file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.real
def test_a_full_file_system_stops_intake_and_loses_nothing(tiny_file_system: Path) -> None:
    directory = tiny_file_system / "journal"
    journal = DiskJournal(directory, Retention(bytes_max=1 << 20), segment_bytes=256 << 10)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    first = fill(journal, 1)
    assert firsts(journal) == list(range(1, len(firsts(journal)) + 1))
    removed = journal.trim()
    assert removed[0].start == 1
    journal.commit()
    held = removed[0].stop
    assert firsts(journal) == list(range(held, first))
    journal.checkpoint()
    again_first = fill(journal, first)
    assert again_first > first
    while journal.trim():
        pass
    journal.close()
    again = DiskJournal(directory)
    assert firsts(again) == list(range(again.first_held("t/a", SOURCE_A), again_first))
    assert again.ledger.published["t/a", SOURCE_A].ranges() == [(1, again_first)]
    again.close()


def fill(journal: DiskJournal, first: int) -> int:
    """Keep batches until the disk is full; gives the seq after the last that was staged."""
    for seq in range(first, first + 1_000):
        stage(journal, batch(seq, size=10_000))
        try:
            journal.checkpoint() if seq % 7 == 0 else journal.commit()
        except JournalFull:
            return seq + 1
    raise AssertionError("the disk was never full")

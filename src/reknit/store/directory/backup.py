"""Backing up a data directory while a node uses it, and restoring it.

A backup has the files of a data directory. At every moment of a backup, its directory can be restored: first the log
grows, then the index and the small files that are not ahead of that log replace the older ones, then files that
retention has removed are deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from reknit import environment
from reknit.errors import JournalError
from reknit.store.directory.index_check import open_index_to_read
from reknit.store.directory.layout import JournalLabel, Layout, SharedEnd, is_locked
from reknit.store.directory.survey import LogSurvey
from reknit.store.directory.verification import OnProgress, verify_journal
from reknit.store.log.segment_files import SegmentFiles, segment_path, segment_starts, sync_directory

COPY_BYTES: Final = 4 << 20
ALIGNED: Final = "aligned"
"""The directory of a second journal, which a cache has."""
EPOCH: Final = "epoch"
"""The file with the epoch of a journal's positions and sources. A restored journal gets a new one."""


class BackupReport(msgspec.Struct, frozen=True):
    """What a backup holds, and how much of it was copied now."""

    files: int
    bytes: int
    copied_bytes: int
    """Bytes of the log that were not in the backup before."""
    events: int

    def add(self, other: BackupReport) -> BackupReport:
        """Both journals of a node."""
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return BackupReport(*(a + b for a, b in zip(mine, theirs, strict=True)))


def back_up(data: Path, target: Path, on_progress: OnProgress = lambda done, total: None) -> BackupReport:
    """Copy what is new of a data directory into a backup, and verify the backup. A node may be using it.

    Raises `JournalError` if the backup is of another journal, or damaged.
    """
    report = _Backup(Layout(data), Layout(target), on_progress).run()
    if (data / ALIGNED / "journal.json").exists():
        report = report.add(_Backup(Layout(data / ALIGNED), Layout(target / ALIGNED), on_progress).run())
    return report


def restore(backup: Path, data: Path, on_progress: OnProgress = lambda done, total: None) -> BackupReport:
    """Make a data directory of a backup. Raises `JournalError` if the backup is damaged, or the directory not empty.

    The epoch is left out, so the node makes a new one, and the journal gets a new id: positions and lasting sources that
    it gave out after the backup are never taken for those that it gives out from now on.
    """
    _check_sound(backup)
    if data.exists() and any(data.iterdir()):
        error = JournalError("the directory is not empty", str(data))
        error.do = "move it away, or restore into another one"
        raise error
    draft = data.with_name(data.name + ".restoring")
    shutil.rmtree(draft, ignore_errors=True)
    total = sum(path.stat().st_size for path in backup.rglob("*") if path.is_file())
    copied = 0
    for path in sorted(backup.rglob("*")):
        place = draft / path.relative_to(backup)
        if path.is_dir():
            place.mkdir(parents=True)
        elif path.name not in (EPOCH, "lock.mdb", "lock"):
            place.parent.mkdir(parents=True, exist_ok=True)
            copied += _copy_rest(path, place, path.stat().st_size)
            on_progress(copied, total)
    for label in draft.rglob("journal.json"):
        _begin_anew(Layout(label.parent))
    report = _check_sound(draft, copied)
    if data.exists():
        data.rmdir()
    draft.rename(data)
    sync_directory(data.parent)
    return report


def _begin_anew(layout: Layout) -> None:
    """Give a restored journal an id of its own, and let it remember the old one, which its dead letters have."""
    label = layout.read_label()
    new = JournalLabel(label.format, environment.token_hex(16), label.origin or label.id)
    _replace(layout.label, msgspec.json.encode(new))


class _Backup:
    """The backup of one journal."""

    def __init__(self, source: Layout, target: Layout, on_progress: OnProgress) -> None:
        self._source, self._target, self._on_progress = source, target, on_progress

    def run(self) -> BackupReport:
        source, target = self._source, self._target
        source.read_label()
        self._check_same()
        for directory in (target.root, target.log):
            directory.mkdir(parents=True, exist_ok=True)
        # Read before the log: they must not be ahead of it.
        small = {path.name: path.read_bytes() for path in self._small_files()}
        for name in ("journal.json", EPOCH):  # so that an interrupted backup is known to be of this journal
            if name in small:
                _replace(target.root / name, small[name])
        draft = self._copy_index()
        copied, starts = self._copy_log()
        _swap(draft, target.index)
        for name, data in small.items():
            _replace(target.root / name, data)
        for start in set(segment_starts(target.log)) - set(starts):
            segment_path(target.log, start).unlink()
        sync_directory(target.log)
        sync_directory(target.root)
        return _check_sound(target.root, copied)

    def _small_files(self) -> Iterator[Path]:
        root = self._source.root
        yield from sorted(root.glob("*.json"))
        if (root / EPOCH).exists():
            yield root / EPOCH

    def _check_same(self) -> None:
        """A backup grows with one journal. After a restore, equal positions may hold other events."""
        source, target = self._source, self._target
        if not target.label.exists():
            if target.root.exists() and any(path.name != ALIGNED for path in target.root.iterdir()):
                error = JournalError("the directory is neither empty nor a backup", str(target.root))
                error.do = "choose an empty directory"
                raise error
            return
        is_same = source.read_label() == target.read_label()
        if not is_same or _text(source.root / EPOCH) != _text(target.root / EPOCH):
            error = JournalError(f"the backup is not of the journal in {source.root}", str(target.root))
            error.do = "choose an empty directory: a restored journal is another one"
            raise error

    def _copy_index(self) -> Path:
        draft = self._target.root / "index.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        index = open_index_to_read(self._source)
        try:
            index.copy_to(draft)
        finally:
            index.close()
        _sync(draft / "data.mdb")
        return draft

    def _copy_log(self) -> tuple[int, list[int]]:
        """Copy what the backup does not have; returns how many bytes, and the segments of the log."""
        source, target = self._source, self._target
        end = _end(source)
        starts = [start for start in segment_starts(source.log) if start <= end]
        copied = 0
        held: list[int] = []
        for start, following in zip(starts, [*starts, end][1:], strict=True):
            path = segment_path(source.log, start)
            try:
                size = min(path.stat().st_size, following - start)
                copied += _copy_rest(path, segment_path(target.log, start), size)
            except FileNotFoundError:  # retention removed it, and so everything before it
                held.clear()
                continue
            held.append(start)
            self._on_progress(start + size - starts[0], end - starts[0])
        return copied, held


def _end(layout: Layout) -> int:
    """How much of the log is on disk, or, if no node writes it, where its last valid frame ends."""
    if not is_locked(layout.lock):
        return _last_frame_end(layout)
    shared = SharedEnd(layout.end, writable=False)
    try:
        return shared.read()[1]
    finally:
        shared.close()


def _last_frame_end(layout: Layout) -> int:
    starts = segment_starts(layout.log)
    if not starts:
        return 0
    files = SegmentFiles(layout.log)
    survey = LogSurvey(files, starts[-1:], end=0, anchors=())
    for _ in survey:
        pass  # it collects the valid parts
    files.close()
    return survey.parts[-1].segment.end


def _copy_rest(path: Path, place: Path, size: int) -> int:
    """Make a copy of the first `size` bytes, of which it has a part already; returns how many bytes were copied."""
    with path.open("rb") as file, place.open("ab") as copy:
        at = copy.tell()
        if at > size:  # a repair cut it
            copy.truncate(size)
            at = size
        first = at
        file.seek(at)
        while at < size and (data := file.read(min(COPY_BYTES, size - at))):
            copy.write(data)
            at += len(data)
        copy.flush()
        os.fsync(copy.fileno())
    return at - first


def _check_sound(directory: Path, copied: int = 0) -> BackupReport:
    """Check every checksum. Raises `JournalError`."""
    found = verify_journal(directory)
    if not found.is_sound:
        what = "; ".join([*map(str, found.damages), *([found.index_damage] if found.index_damage else [])])
        error = JournalError(f"the backup is damaged: {what}", str(directory))
        error.do = "check the journal with `reknit journal verify`, and back it up into an empty directory"
        raise error
    return BackupReport(len(segment_starts(directory / "log")), found.bytes, copied, found.events)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(data)
    _sync(draft)
    draft.replace(path)


def _swap(draft: Path, place: Path) -> None:
    """Replace the index of the backup: its one file, in one step."""
    place.mkdir(exist_ok=True)
    (draft / "data.mdb").replace(place / "data.mdb")
    shutil.rmtree(draft)
    sync_directory(place)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Maintenance of a lake: compacts small files, expires old days, and deletes files that no longer count.

Safe while a pipeline runs. It touches only files that no stage still has to process. A replaced file stays for a
while, for readers that have it open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow.parquet as pq

from reknit.spark.lake.captured_files import EarlierBatches, is_named
from reknit.spark.lake.commit_log import (
    COMPACT,
    STAGES,
    Commit,
    Lake,
    LakeError,
    LakeFile,
    added_by,
    sync_folder,
)
from reknit.spark.lake.tables import TABLES

__all__ = ["MaintenanceReport", "compact", "expire", "fold_long_logs", "processed_commits"]

FILE_BYTES: Final = 128 << 20
"""Files are compacted up to about this size."""
KEEP_S: Final = 3600.0
COMMITS_MAX: Final = 200
"""The pipeline folds a log that has more commits than this."""
ORPHAN_S: Final = 86_400.0
"""A file that no commit names may be about to be committed; after a day it must be left from a crash."""


class MaintenanceReport(msgspec.Struct, frozen=True):
    """The result of compaction or expiry."""

    files_before: int = 0
    files_after: int = 0
    commits_folded: int = 0
    files_expired: int = 0
    rows_expired: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0


class ProcessedCommits(NamedTuple):
    """The commits that every stage has processed."""

    settle: int
    """The last such commit of settle."""
    capture: int
    """The last such commit of capture."""
    needed: list[EarlierBatches]
    """Batches of these commits that are needed all the same: of ranges that are held, or were until just now."""

    def covers(self, file: LakeFile) -> bool:
        """True if no stage will read this file again as part of its commit."""
        match file.table:
            case "settled":
                return added_by(file) <= self.settle
            case "batches":
                return added_by(file) <= self.capture and not any(is_named(file, one) for one in self.needed)
            case _:
                return True


def processed_commits(lake: Lake) -> ProcessedCommits:
    """What every stage of a lake has processed."""
    settles = lake.log("settle").commits()
    lasts = [lake.log(stage).last() for stage in ("events", "dead_letters")]
    seen = [int(last.meta["through"]) for last in lasts if last is not None]
    if not settles or not seen:
        return ProcessedCommits(-1, -1, [])
    waiting, last = [commit.meta for commit in settles if commit.id > min(seen)], settles[-1].meta
    since = [int(meta["since"]) for meta in waiting]
    if "kept" not in last:  # it was written before held ranges had their commits
        since.append(int(last["since"]))
    needed = [meta.get("earlier", {}) for meta in waiting] + [last.get("kept", {})]
    return ProcessedCommits(min(seen), min([*since, int(last["through"])]), needed)


def _touchable(lake: Lake, table: str) -> list[LakeFile]:
    processed = processed_commits(lake)
    return [file for file in lake.files(table) if processed.covers(file)]


def compact(lake: Lake, file_bytes: int = FILE_BYTES, keep_s: float = KEEP_S) -> MaintenanceReport:
    """Compact small files and fold commits, then delete files that no longer count."""
    with lake.locked("_upkeep"):
        groups = [
            group
            for table in TABLES
            if not table.is_state
            for files in _by_folder(_touchable(lake, table.name))
            for group in _groups(files, file_bytes)
        ]
        made = [_join(lake, group) for group in groups]
        gone = [file.path for group in groups for file in group]
        if made:
            _commit(lake, made, gone)
        deleted = _delete(lake, keep_s)
        folded = _fold(lake)
    return MaintenanceReport(
        files_before=len(gone),
        files_after=len(made),
        commits_folded=folded,
        files_deleted=len(deleted),
        bytes_deleted=sum(deleted),
    )


def fold_long_logs(lake: Lake, commits_max: int = COMMITS_MAX) -> int:
    """Fold the commits of logs that have become long, unless maintenance is running. Returns how many were folded.

    Reading a log takes as long as it has commits, and every run reads them all.
    """
    if max(lake.log(stage).size for stage in STAGES) <= commits_max:
        return 0
    try:
        with lake.locked("_upkeep"):
            return _fold(lake)
    except LakeError:
        return 0


def _fold(lake: Lake) -> int:
    """Fold the commits that every stage has processed, and forget files that were removed and deleted."""
    processed = processed_commits(lake)
    limits = {"capture_batches": processed.capture, "settle": processed.settle}
    removed = {path for commit in lake.log(COMPACT).commits() for path in commit.removes}
    gone = {path for path in removed if not (lake.root / path).exists()}
    folded = sum(lake.log(stage).fold(limits.get(stage, 1 << 62), gone) for stage in STAGES)
    # Last: until a stage's log has forgotten a file, this log has to say that it was removed.
    forgotten = gone - {
        file.path for stage in STAGES for one in lake.log(stage).commits() for file in one.files
    }
    lake.log(COMPACT).fold(1 << 62, forgotten)
    return folded


def expire(
    lake: Lake, before_day: str, tables: Iterable[str] = (), keep_s: float = KEEP_S
) -> MaintenanceReport:
    """Remove the days before `before_day` (2026-01-31) from these tables, or from all that are split by day."""
    wanted = set(tables) or {table.name for table in TABLES if table.time and not table.is_state}
    with lake.locked("_upkeep"):
        old = [f for t in sorted(wanted) for f in _touchable(lake, t) if f.day and f.day < before_day]
        if old:
            _commit(lake, [], [file.path for file in old])
        deleted = _delete(lake, keep_s)
        _fold(lake)
    return MaintenanceReport(
        files_expired=len(old),
        rows_expired=sum(file.rows for file in old),
        files_deleted=len(deleted),
        bytes_deleted=sum(deleted),
    )


def _by_folder(files: list[LakeFile]) -> Iterable[list[LakeFile]]:
    folders: dict[tuple[str, str], list[LakeFile]] = {}
    for file in files:
        folders.setdefault((file.day, file.topic_key), []).append(file)
    return folders.values()


def _groups(files: list[LakeFile], file_bytes: int) -> list[list[LakeFile]]:
    """Runs of small files, in commit order, each with about `file_bytes` in total."""
    groups: list[list[LakeFile]] = [[]]
    size = 0
    for file in sorted(files, key=added_by):
        if file.bytes >= file_bytes:
            continue
        if size + file.bytes > file_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return [group for group in groups if len(group) > 1]


def _join(lake: Lake, files: list[LakeFile]) -> LakeFile:
    first = files[0]
    place = (lake.root / first.path).parent / f"compact-{uuid4().hex[:12]}.parquet"
    schema = pq.read_schema(lake.root / first.path)
    with pq.ParquetWriter(place, schema, compression="zstd") as writer:
        for file in files:
            for rows in pq.ParquetFile(lake.root / file.path).iter_batches():
                writer.write_batch(rows.select(schema.names).cast(schema))
    with open(place, "rb") as written:
        os.fsync(written.fileno())
    sync_folder(place.parent)
    rows_total, newest = sum(file.rows for file in files), max(map(added_by, files))
    relative = str(place.relative_to(lake.root))
    return LakeFile(
        first.table, relative, rows_total, place.stat().st_size, first.day, first.topic_key, commit=newest
    )


def _commit(lake: Lake, made: list[LakeFile], gone: list[str]) -> None:
    log = lake.log(COMPACT)
    last = log.last()
    log.add(Commit(COMPACT, 0 if last is None else last.id + 1, time.time_ns() // 1000, made, gone))


def _delete(lake: Lake, keep_s: float) -> list[int]:
    """Delete files that were removed at least `keep_s` ago, and files that a crashed writer left.

    Returns their sizes.
    """
    now = time.time()
    named = {file.path for stage in STAGES for commit in lake.log(stage).commits() for file in commit.files}
    changes = lake.log(COMPACT).commits()
    named |= {file.path for commit in changes for file in commit.files}
    removed = {path: commit.time_us / 1e6 for commit in changes for path in commit.removes}
    sizes: list[int] = []
    for table in (table.name for table in TABLES):
        for path in (lake.root / table).rglob("*.parquet"):
            relative = str(path.relative_to(lake.root))
            if relative in removed:
                is_due = now - removed[relative] >= keep_s
            else:
                is_due = relative not in named and now - path.stat().st_mtime >= ORPHAN_S
            if is_due:
                sizes.append(path.stat().st_size)
                path.unlink()
    return sizes

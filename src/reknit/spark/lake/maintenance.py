"""Maintenance of a lake: merges small files, expires old days, and deletes files that no longer count.

Delta Lake's library does the work. Safe while a pipeline runs: it touches only files that no stage still has to
process. A replaced file stays for a while, for readers that have it open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from reknit.spark.lake.captured_files import EarlierBatches, is_named
from reknit.spark.lake.commits import LakeError, LakeFile, added_by
from reknit.spark.lake.lake import REDRIVEN, STAGES, Lake
from reknit.spark.lake.tables import TABLES

__all__ = ["MaintenanceReport", "compact", "expire", "processed_commits", "prune_runs"]

FILE_BYTES: Final = 128 << 20
"""Files are merged up to about this size."""
KEEP_S: Final = 3600.0
COMMITS_MAX: Final = 200
"""The pipeline prunes table `runs` if a stage has more files in it than this."""


class MaintenanceReport(msgspec.Struct, frozen=True):
    """The result of compaction or expiry."""

    files_before: int = 0
    files_after: int = 0
    runs_pruned: int = 0
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

    def limit(self, table: str) -> int | None:
        """The newest commit whose files of a table every stage has processed; None if no stage reads the table."""
        return {"settled": self.settle, "batches": self.capture}.get(table)

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


def compact(lake: Lake, file_bytes: int = FILE_BYTES, keep_s: float = KEEP_S) -> MaintenanceReport:
    """Merge small files and prune table `runs`, then delete files that no longer count."""
    with lake.locked("_upkeep"):
        processed = processed_commits(lake)
        before, after = 0, 0
        for table in TABLES:
            if table.is_state or (limit := processed.limit(table.name)) == -1:
                continue
            merged, made = lake.table(table.name).merge(limit, file_bytes)
            before, after = before + merged, after + made
        deleted = _vacuum(lake, keep_s)
        pruned = _prune(lake, keep_s)
    return MaintenanceReport(
        files_before=before,
        files_after=after,
        runs_pruned=pruned,
        files_deleted=len(deleted),
        bytes_deleted=sum(deleted),
    )


def prune_runs(lake: Lake, commits_max: int = COMMITS_MAX) -> int:
    """Prune table `runs` if it has become long, unless maintenance is running. Returns how many commits were removed.

    Reading a stage's commits takes as long as they are many.
    """
    if max(lake.runs.size(stage) for stage in STAGES) <= commits_max:
        return 0
    try:
        with lake.locked("_upkeep"):
            return _prune(lake, KEEP_S)
    except LakeError:
        return 0


def _prune(lake: Lake, keep_s: float) -> int:
    """Remove the commits that every stage has processed from table `runs`, and merge its files."""
    processed = processed_commits(lake)
    done = lake.log(REDRIVEN).last()
    limits = {
        "capture_batches": processed.capture,
        "settle": processed.settle,
        "redrive": -1 if done is None else done.id,
    }
    pruned = sum(lake.runs.prune(stage, limits.get(stage, 1 << 62)) for stage in STAGES)
    lake.runs.merge(keep_s)
    return pruned


def expire(
    lake: Lake, before_day: str, tables: Iterable[str] = (), keep_s: float = KEEP_S
) -> MaintenanceReport:
    """Remove the days before `before_day` (2026-01-31) from these tables, or from all that are split by day.

    Days with batches or ranges that a stage still has to process stay until the next time.
    """
    wanted = set(tables) or {table.name for table in TABLES if table.time and not table.is_state}
    with lake.locked("_upkeep"):
        processed = processed_commits(lake)
        files, rows = 0, 0
        for name in sorted(wanted):
            found = [file for file in lake.files(name) if file.day and file.day < before_day]
            needed = {file.day for file in found if not processed.covers(file)}
            days = sorted({file.day for file in found} - needed)
            if days:
                removed = lake.table(name).delete(f"day IN ({', '.join(map(repr, days))})")
                files, rows = files + removed[0], rows + removed[1]
        deleted = _vacuum(lake, keep_s)
    return MaintenanceReport(
        files_expired=files,
        rows_expired=rows,
        files_deleted=len(deleted),
        bytes_deleted=sum(deleted),
    )


def _vacuum(lake: Lake, keep_s: float) -> list[int]:
    """Delete files that no longer count; returns their sizes."""
    return [size for table in TABLES for size in lake.table(table.name).vacuum(keep_s)]

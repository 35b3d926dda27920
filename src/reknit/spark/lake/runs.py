"""Table `runs`: every commit of every stage, recorded before any of its tables changes.

    LAKE/runs/stage=settle/settle-12-….parquet     one row: what commit 12 of settle adds to which table

A writer that dies between two tables left the rest of its commit here, and it is carried out later. The row is also
what makes a commit of several tables one commit: it is there or not.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa

from reknit.decoding import UNREADABLE
from reknit.spark.lake.commits import FOLDED, Commit, LakeError, LakeFile, added_by, cannot_write
from reknit.spark.lake.delta import DeltaFiles
from reknit.spark.lake.storage import Storage
from reknit.spark.lake.tables import RUNS

__all__ = ["RunTable"]

KEPT: Final = 100
"""So many commits of each stage stay in the table when it is pruned, though nothing needs them."""
FILE_BYTES: Final = 16 << 20
_files: Final = msgspec.json.Decoder(list[LakeFile])
_meta: Final = msgspec.json.Decoder(dict[str, Any])


class RunTable:
    """The commits of all stages, as values. Files do not change, so each is read once."""

    def __init__(self, storage: Storage, application: str) -> None:
        self._storage, self._application = storage, application
        self._delta = DeltaFiles(storage, RUNS)
        self._read: dict[str, list[Commit]] = {}

    def commits(self, stage: str) -> list[Commit]:
        """The commits of a stage that were not pruned, oldest first."""
        found = [commit for file in self._files(stage) for commit in self._commits_in(file)]
        return sorted(found, key=lambda commit: commit.id)

    def last(self, stage: str) -> Commit | None:
        """The newest commit of a stage."""
        files = self._files(stage)
        newest = max(files, key=added_by, default=None)
        if newest is None:
            return None
        if newest.commit == FOLDED:
            return self.commits(stage)[-1]
        return self._commits_in(newest)[0]

    def add(self, commit: Commit) -> None:
        """Record a commit, whose files are already on disk. Raises `LakeError` if the stage has one of this id."""
        file = self._write(commit)
        if not self._delta.commit(f"{self._application}/{commit.stage}", commit.id, [file]):
            self._storage.delete(file.path)
            what = f"commit {commit.id} of stage {commit.stage} already exists"
            raise LakeError(self._storage.root, what, "run one pipeline per lake")

    def size(self, stage: str) -> int:
        """How many files hold the commits of a stage."""
        return len(self._files(stage))

    def prune(self, stage: str, through: int) -> int:
        """Remove the commits of a stage up to `through`, but for the last ones; returns how many.

        The caller knows that no stage needs them. If another process changes the table now, nothing is removed.
        """
        last = self.last(stage)
        limit = FOLDED if last is None else min(through, last.id - KEPT)
        if limit < 0 or not any(commit.id <= limit for commit in self.commits(stage)):
            return 0
        try:
            return self._delta.delete(f"stage = '{stage}' AND run <= {limit}")[1]
        except LakeError:
            return 0

    def merge(self, keep_s: float) -> None:
        """Merge the table's small files, and delete those that were merged."""
        self._delta.merge(None, FILE_BYTES)
        self._delta.vacuum(keep_s)

    def _files(self, stage: str) -> list[LakeFile]:
        return [file for file in self._delta.files() if file.topic_key == stage]

    def _commits_in(self, file: LakeFile) -> list[Commit]:
        found = self._read.get(file.path)
        if found is None:
            found = self._read[file.path] = self._decode(file)
        return found

    def _decode(self, file: LakeFile) -> list[Commit]:
        try:
            with self._storage.parquet(file.path) as opened:
                rows = opened.read(["run", "time", "files", "meta"])
            rows = rows.set_column(1, "time", rows["time"].cast(pa.int64())).to_pylist()
            return [
                Commit(
                    file.topic_key,
                    row["run"],
                    row["time"],
                    _files.decode(row["files"]),
                    _meta.decode(row["meta"]),
                )
                for row in rows
            ]
        except (*UNREADABLE, pa.ArrowException) as error:
            raise LakeError(
                self._storage.url(file.path), f"can't be read ({error})", "restore it from a copy"
            ) from None

    def _write(self, commit: Commit) -> LakeFile:
        path = f"{RUNS.name}/stage={commit.stage}/{commit.stage}-{commit.id}-{uuid4().hex[:8]}.parquet"
        rows = {
            "run": pa.array([commit.id], pa.int64()),
            "time": pa.array([commit.time_us], pa.timestamp("us", "UTC")),
            "rows": pa.array([sum(file.rows for file in commit.files)], pa.int64()),
            "files": pa.array([msgspec.json.encode(commit.files).decode()], pa.string()),
            "meta": pa.array([msgspec.json.encode(commit.meta).decode()], pa.string()),
        }
        try:
            size = self._storage.write_table(path, pa.table(rows))
        except OSError as error:
            raise cannot_write(self._storage.root, error) from None
        return LakeFile(RUNS.name, path, 1, size, topic_key=commit.stage)

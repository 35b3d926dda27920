"""One Delta table of a lake, by delta-rs: its files, its commits, and the library's own maintenance.

A commit carries an application transaction: the stage's name and the number of the stage's commit. So a commit that is
carried out again, after a crash or by another process, is made once.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from reknit.spark.lake.commits import LakeError, LakeFile, added_by, cannot_write, commit_of_name
from reknit.spark.lake.durable_files import sync_file, sync_folder
from reknit.spark.lake.storage import Storage
from reknit.spark.lake.tables import Table

__all__ = ["DeltaFiles", "schema_of"]

SETTINGS: Final = {"delta.checkpointInterval": "100", "delta.logRetentionDuration": "interval 1 days"}
ORPHAN_HOURS: Final = 24
"""A file that no commit names may be about to be committed; after a day it must be left from a crash."""
HISTORY_STEP: Final = 50
_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<bigint>": pa.list_(pa.int64()),
    "array<struct<start:bigint,stop:bigint>>": pa.list_(
        pa.struct([("start", pa.int64()), ("stop", pa.int64())])
    ),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_PARTITIONS: Final = {"day": pa.date32(), "topic_key": pa.string(), "stage": pa.string()}


def schema_of(table: Table) -> pa.Schema:
    """A table's columns for Arrow, with those that its folders stand for."""
    fields = {column.name: _TYPES[column.type] for column in table.columns}
    return pa.schema(fields | {name: _PARTITIONS[name] for name in table.partitions})


class DeltaFiles:
    """A table of a lake. May be used by several threads."""

    def __init__(self, storage: Storage, table: Table) -> None:
        self.table = table
        self._storage = storage
        self._url = storage.url(table.name)
        self._delta: DeltaTable | None = None
        self._lock = threading.RLock()
        self._listed: tuple[int, list[LakeFile]] = (-1, [])

    def create(self) -> None:
        """Make the table, unless it exists."""
        if self._storage.is_local:
            Path(self._url).mkdir(exist_ok=True)  # whoever has no right to do so is told so by the system
        DeltaTable.create(
            self._url,
            schema_of(self.table),
            mode="ignore",
            partition_by=list(self.table.partitions),
            name=self.table.name,
            description=self.table.doc,
            configuration=SETTINGS,
        )

    def open(self) -> DeltaTable:
        """The newest version, as the library has it. Raises `LakeError` if it can't be read."""
        with self._lock:
            try:
                if self._delta is None:
                    self._delta = DeltaTable(self._url)
                else:
                    self._delta.update_incremental()
            except DeltaError as error:
                raise self._failed("read", error) from None
            return self._delta

    def files(self) -> list[LakeFile]:
        """The files that count, those of the oldest commit first."""
        with self._lock:
            delta = self.open()
            version = delta.version()
            if self._listed[0] != version:
                in_order = sorted(self._list(delta), key=lambda file: (added_by(file), file.path))
                self._listed = (version, in_order)
            return list(self._listed[1])

    def _list(self, delta: DeltaTable) -> Iterator[LakeFile]:
        actions = pa.table(delta.get_add_actions(flatten=True))
        names = [
            "path",
            "num_records",
            "size_bytes",
            *(f"partition.{name}" for name in self.table.partitions),
        ]
        for path, rows, size, *parts in zip(*(actions[name].to_pylist() for name in names), strict=True):
            values = dict(zip(self.table.partitions, parts, strict=True))
            yield LakeFile(
                self.table.name,
                f"{self.table.name}/{path}",
                rows or 0,
                size,
                str(values.get("day") or ""),
                values.get("topic_key") or values.get("stage") or "",
                commit_of_name(path),
            )

    # -- commits

    def version_of(self, application: str) -> int:
        """The newest commit of an application; -1 if there is none."""
        with self._lock:
            found = self.open().transaction_version(application)
        return -1 if found is None else found

    def commit(self, application: str, id: int, files: Iterable[LakeFile], overwrites: bool = False) -> bool:
        """Add files as commit `id` of an application, unless the table has it. Returns whether it was added."""
        adds: list[Any] = list(map(self._action, files))
        properties = CommitProperties(
            custom_metadata={"run": id}, app_transactions=[Transaction(application, id)]
        )
        with self._lock:
            delta = self.open()
            # The handle that says so is the one that commits: if another process was faster, it is refused.
            if self.version_of(application) >= id:
                return False
            try:
                delta.create_write_transaction(
                    adds,
                    "overwrite" if overwrites else "append",
                    delta.schema(),
                    list(self.table.partitions),
                    commit_properties=properties,
                )
            except DeltaError as error:
                if isinstance(error, CommitFailedError) and self.version_of(application) >= id:
                    return False
                raise self._failed("written", error) from None
            except OSError as error:
                raise cannot_write(self._storage.root, error) from None
            self._sync()
        return True

    def _failed(self, verb: str, error: DeltaError) -> LakeError:
        what = f"table {self.table.name} can't be {verb} ({str(error).splitlines()[0]})"
        do = {"read": "restore it from a copy", "written": "run it again: it resumes where it left off"}
        return LakeError(
            self._storage.root, what, do.get(verb, "run it again when no other process changes it")
        )

    def _action(self, file: LakeFile) -> AddAction:
        parts = {"day": file.day or None, "topic_key": file.topic_key, "stage": file.topic_key}
        return AddAction(
            path=file.path.removeprefix(f"{self.table.name}/"),
            size=file.bytes,
            partition_values={name: parts[name] for name in self.table.partitions},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=file.stats or json.dumps({"numRecords": file.rows}),
        )

    def _sync(self) -> None:
        """Make the last commit durable: the library leaves that to the file system."""
        if not self._storage.is_local:
            return
        log = Path(self._url, "_delta_log")
        newest = log / f"{self.open().version():020d}.json"
        if newest.exists():
            sync_file(newest)
        sync_folder(log)

    # -- maintenance

    def merge(self, through: int | None, file_bytes: int) -> tuple[int, int]:
        """Merge small files that came with commits up to `through`, or all; returns how many became how many."""
        with self._lock:
            delta = self.open() if through is None else self._as_of(through)
            if delta is None or not set(delta.file_uris()) <= set(self.open().file_uris()):
                return 0, 0  # they were merged since that version, and nothing was processed meanwhile
            try:
                done = delta.optimize.compact(
                    target_size=file_bytes, writer_properties=WriterProperties(compression="ZSTD")
                )
            except DeltaError as error:
                raise self._failed("merged", error) from None
            return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def _as_of(self, through: int) -> DeltaTable | None:
        """The newest version in which no file came with a commit after `through`; None if that is not known."""
        newest = self.open()
        version, limit, seen = newest.version(), HISTORY_STEP, 0
        while True:
            history = newest.history(limit)
            for entry in history[seen:]:
                if "run" in entry and int(entry["run"]) <= through:
                    return DeltaTable(self._url, version=version)
                if "run" in entry:
                    version = int(entry["version"]) - 1
            if len(history) < limit:
                return None
            seen, limit = len(history), limit * 4

    def delete(self, where: str) -> tuple[int, int]:
        """Remove the rows that match; returns how many files and rows. Raises `LakeError` if others change them now."""
        with self._lock:
            try:
                done: dict[str, Any] = self.open().delete(where)
            except DeltaError as error:
                raise self._failed("cut", error) from None
        return int(done.get("num_removed_files") or 0), int(done.get("num_deleted_rows") or 0)

    def vacuum(self, keep_s: float) -> list[int]:
        """Delete files that were removed at least `keep_s` ago, and what crashes left; returns their sizes.

        The library counts in hours.
        """
        hours = math.ceil(keep_s / 3600)
        with self._lock:
            sizes = self._vacuum(hours, full=False)
            return sizes + self._vacuum(max(hours, ORPHAN_HOURS), full=True)

    def _vacuum(self, hours: int, full: bool) -> list[int]:
        delta = self.open()
        found = delta.vacuum(hours, True, False, full=full)
        sizes = [self._storage.size(f"{self.table.name}/{path}") for path in found]
        if found:
            delta.vacuum(hours, False, False, full=full)
        return sizes

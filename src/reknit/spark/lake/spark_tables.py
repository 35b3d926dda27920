"""Reads and writes a lake's tables with Spark: it gets the list of their files, and needs no package of its own.

The tasks of a `Transaction` write durable files under names that no commit has yet (see `task_files`); then it commits
them all at once. Readers see nothing before the commit; a crash leaves only files that no commit names.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.spark.lake.commits import Commit, LakeFile, added_by
from reknit.spark.lake.durable_files import sync_folder
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.storage import open_parquet
from reknit.spark.lake.tables import TABLE_OF, TABLES
from reknit.spark.lake.task_files import RESULTS, TaskFiles, lake_file

__all__ = [
    "Transaction",
    "clear_unfinished",
    "create_views",
    "read",
    "read_files",
    "read_heads",
]

OPEN: Final = "_open"
ROWS_AT_ONCE: Final = 1024
"""The folder with the names of the transactions that are not committed yet."""


def read(
    spark: SparkSession, lake: Lake, table: str, after: int | None = None, through: int | None = None
) -> DataFrame:
    """A table, or the rows that the commits `(after, through]` added to it."""
    return read_files(spark, lake, table, lake.files(table, after, through))


def create_views(spark: SparkSession, lake: Lake, prefix: str = "") -> None:
    """Make a temporary view of each table, as it is now: `SELECT … FROM events`."""
    for table in TABLES:
        read(spark, lake, table.name).createOrReplaceTempView(f"{prefix}{table.name}")


def read_files(spark: SparkSession, lake: Lake, table: str, files: Iterable[LakeFile]) -> DataFrame:
    """The rows of some files of a table."""
    named = list(files)
    if not named:
        return _empty(spark, table)
    if not lake.storage.is_local:
        return _read_remote(spark, lake, table, named, TABLE_OF[table].names)
    return spark.read.schema(TABLE_OF[table].ddl).parquet(*lake.paths(named))


def read_heads(spark: SparkSession, lake: Lake, files: Iterable[LakeFile]) -> DataFrame:
    """Rows of table `batches` without their frames; column `captured` has the commit that added each.

    None of the files may be one that compaction made.
    """
    named, columns = list(files), [name for name in TABLE_OF["batches"].names if name != "data"]
    if not named:
        return _empty(spark, "batches").select(*columns, F.lit(None).cast("bigint").alias("captured"))
    if not lake.storage.is_local:
        return _read_remote(spark, lake, "batches", named, columns, commit="captured")
    name = F.regexp_extract(F.col("_metadata.file_name"), r"^capture_batches-(\d+)-", 1)
    return read_files(spark, lake, "batches", named).select(*columns, name.cast("bigint").alias("captured"))


def _read_remote(
    spark: SparkSession, lake: Lake, table: str, files: list[LakeFile], columns: list[str], commit: str = ""
) -> DataFrame:
    """The rows of files in an object store: tasks read them with pyarrow, since Spark's Java has no client for it."""
    paths, commits = lake.paths(files), [added_by(file) for file in files]
    kinds = {column.name: column.type for column in TABLE_OF[table].columns}
    ddl = [f"{name} {kinds[name]}" for name in columns] + ([f"{commit} bigint"] if commit else [])

    def read(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            for number in chunk.column("id").to_pylist():
                with open_parquet(paths[number]) as file:
                    for rows in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                        added = pa.array([commits[number]] * rows.num_rows, pa.int64())
                        yield rows.append_column(commit, added) if commit else rows

    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(read, ", ".join(ddl))


def _empty(spark: SparkSession, table: str) -> DataFrame:
    """No rows, with a table's columns. Spark knows that it is empty, and prunes the query."""
    columns = TABLE_OF[table].columns
    return spark.range(0).select(*(F.lit(None).cast(column.type).alias(column.name) for column in columns))


def clear_unfinished(lake: Lake, stages: Iterable[str]) -> None:
    """Remove what killed writers of these stages left. The caller has the lock that the writers have."""
    for stage in stages:
        for mark in (lake.root / OPEN).glob(f"{stage}-*"):
            _remove_unfinished(lake, stage, mark)


def _remove_unfinished(lake: Lake, stage: str, mark: Path) -> None:
    """Remove a transaction's mark, and its files if they were not committed."""
    last = lake.log(stage).last()  # a transaction makes the commit after the last, or has just made the last
    named = set() if last is None else {file.path for file in last.files}
    for table in (table.name for table in TABLES if table.stage == stage):
        for path in (lake.root / table).rglob(f"{mark.name}-*.parquet"):
            if str(path.relative_to(lake.root)) not in named:
                path.unlink(missing_ok=True)
    mark.unlink(missing_ok=True)


class Transaction:
    """One commit of a stage: write its tables, then `commit`."""

    def __init__(self, lake: Lake, stage: str, id: int) -> None:
        self.lake, self.stage, self.id = lake, stage, id
        self._name = f"{stage}-{id}-{uuid4().hex[:8]}"
        self._mark = lake.root / OPEN / self._name
        self._files: list[LakeFile] = []

    def __enter__(self) -> Transaction:
        self._mark.parent.mkdir(exist_ok=True)
        self._mark.touch()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._mark.unlink(missing_ok=True)
        else:
            _remove_unfinished(self.lake, self.stage, self._mark)

    def write(self, table: str, frame: DataFrame) -> int:
        """Write rows of one table; returns how many."""
        return self.write_parts(frame.select(*TABLE_OF[table].names), {"": table})

    def write_parts(self, frame: DataFrame, tables: dict[str, str]) -> int:
        """Write rows of several tables in one job: column `what`, if there is one, says which.

        `tables` gives the table for each value of `what`.
        """
        return self.take(frame.mapInArrow(self.files(tables).write, RESULTS))

    def files(self, tables: dict[str, str]) -> TaskFiles:
        """Where tasks write the files of this transaction."""
        return TaskFiles(self.lake.storage.root, self._name, tables)

    def take(self, results: DataFrame) -> int:
        """Add the files that a job's tasks write, a row each (`task_files.RESULTS`); returns the rows in them."""
        files = [lake_file(row) for row in results.collect()]
        self._files += files
        return sum(file.rows for file in files)

    def write_arrow(self, table: str, rows: pa.Table) -> None:
        """Write a few rows directly from the driver."""
        for results in self.files({"": table}).write(rows.to_batches()):
            self._files += map(lake_file, results.to_pylist())

    def paths(self, table: str) -> list[str]:
        """The files that were written to a table."""
        return self.lake.paths(file for file in self._files if file.table == table)

    def events(self, table: str) -> int:
        """The events that the rows written to a table stand for."""
        return sum(file.events or 0 for file in self._files if file.table == table)

    def commit(self, meta: dict[str, Any] | None = None) -> Commit:
        """Commit: from now on all written files count."""
        if self.lake.storage.is_local:
            for folder in _folders(self.lake.root, self._files):
                sync_folder(folder)
        now_us = time.time_ns() // 1000
        commit = Commit(self.stage, self.id, now_us, self._files, meta=meta or {})
        self.lake.log(self.stage).add(commit)
        return commit


def _folders(root: Path, files: Iterable[LakeFile]) -> Iterator[Path]:
    """Every folder above these files, innermost first, each once."""
    seen: set[Path] = {root}
    yield root
    for file in files:
        folder = (root / file.path).parent
        while folder not in seen:
            seen.add(folder)
            yield folder
            folder = folder.parent

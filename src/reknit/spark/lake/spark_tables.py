"""Reads and writes a lake's tables with Spark.

A `Transaction` writes files to a staging folder, moves them to their places, makes data and folders durable, and then
commits them all at once. Readers see nothing before the commit; a crash leaves only files that no commit names.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.errors import LocalError
from reknit.spark.lake.commit_log import Commit, Lake, LakeFile, sync_folder
from reknit.spark.lake.tables import SLUG_CHARS_MAX, TABLE_OF, Table

__all__ = ["Transaction", "check_format", "commit_of_row", "day_of", "key_of", "read", "read_files"]

FORMATS: Final = ("parquet", "delta", "iceberg")
_PACKAGES: Final = {
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
}
_PARTITIONS: Final = ["day", "topic_key"]


def read(
    spark: SparkSession, lake: Lake, table: str, after: int | None = None, through: int | None = None
) -> DataFrame:
    """A table, or the rows that the commits `(after, through]` added to it."""
    return read_files(spark, lake, table, lake.files(table, after, through))


def read_files(spark: SparkSession, lake: Lake, table: str, files: Iterable[LakeFile]) -> DataFrame:
    """The rows of some files of a table."""
    paths = lake.paths(files)
    if not paths:
        return _empty(spark, table)
    return spark.read.schema(TABLE_OF[table].ddl).parquet(*paths)


def commit_of_row(stage: str) -> Column:
    """The commit that added a row, for a frame of `read_files` with files that no compaction made."""
    name = F.col("_metadata.file_name")
    return F.regexp_extract(name, rf"^{stage}-(\d+)-", 1).cast("bigint")


def _empty(spark: SparkSession, table: str) -> DataFrame:
    """No rows, with a table's columns. Spark knows that it is empty, and prunes the query."""
    columns = TABLE_OF[table].columns
    return spark.range(0).select(*(F.lit(None).cast(column.type).alias(column.name) for column in columns))


def with_places(frame: DataFrame, about: Table) -> DataFrame:
    """Add the columns that give a row's folder."""
    if not about.time:
        return frame
    return frame.withColumn("day", day_of(F.col(about.time))).withColumn("topic_key", key_of(F.col("topic")))


def day_of(time: Column) -> Column:
    """The day of a time, as the name of a folder."""
    return F.coalesce(F.date_format(time, "yyyy-MM-dd"), F.lit("none"))


def key_of(topic: Column) -> Column:
    """As `tables.topic_key`."""
    slug = F.substring(F.regexp_replace(topic, "[^A-Za-z0-9_-]", "_"), 1, SLUG_CHARS_MAX)
    key = F.concat(slug, F.lit("-"), F.substring(F.md5(topic.cast("binary")), 1, 12))
    return F.coalesce(key, F.lit("none"))


class Transaction:
    """One commit of a stage: write its tables, then `commit`."""

    def __init__(self, lake: Lake, stage: str, id: int) -> None:
        self.lake, self.stage, self.id = lake, stage, id
        self._name = f"{stage}-{id}-{uuid4().hex[:8]}"
        self._staging = lake.root / "_staging" / self._name
        self._files: list[LakeFile] = []

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *args: object) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)

    def write(self, table: str, frame: DataFrame) -> int:
        """Write rows of one table; returns how many."""
        about = TABLE_OF[table]
        placed = with_places(frame.select(*about.names), about)
        return self.write_parts(placed, {"": table}, _PARTITIONS if about.time else [])

    def write_parts(self, frame: DataFrame, tables: dict[str, str], partitions: list[str]) -> int:
        """Write rows of several tables in one job: column `what`, if there is one, says which.

        `tables` gives the table for each value of `what`.
        """
        staging = self._staging / uuid4().hex[:8]
        # Spark's default is INT96, which other tools can't write, and which has no statistics.
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        by = ([] if "" in tables else ["what"]) + partitions
        writer = frame.write.mode("errorifexists").option("compression", "zstd")
        (writer.partitionBy(*by) if by else writer).parquet(str(staging))
        before = len(self._files)
        for path in sorted(staging.rglob("*.parquet")):
            self._take(path, staging, tables)
        return sum(file.rows for file in self._files[before:])

    def write_arrow(self, table: str, rows: pa.Table) -> None:
        """Write a few rows directly from the driver."""
        if rows.num_rows == 0:
            return
        self._staging.mkdir(parents=True, exist_ok=True)
        path = self._staging / f"{uuid4().hex[:8]}.parquet"
        pq.write_table(rows, path, compression="zstd")
        self._take(path, self._staging, {"": table})

    def _take(self, path: Path, staging: Path, tables: dict[str, str]) -> None:
        """Move a finished file to its place and make it durable."""
        parts = dict(part.split("=", 1) for part in path.relative_to(staging).parts[:-1])
        table = tables[parts.pop("what", "")]
        rows = pq.read_metadata(path).num_rows
        if rows == 0:
            return
        folder = self.lake.root.joinpath(table, *(f"{name}={value}" for name, value in parts.items()))
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f"{self._name}-{len(self._files)}.parquet"
        _sync(path)
        os.rename(path, place)
        relative = str(place.relative_to(self.lake.root))
        day, key = parts.get("day", ""), parts.get("topic_key", "")
        self._files.append(LakeFile(table, relative, rows, place.stat().st_size, day, key))

    def commit(self, meta: dict[str, Any] | None = None) -> Commit:
        """Commit: from now on all written files count."""
        for folder in _folders(self.lake.root, self._files):
            sync_folder(folder)
        now_us = time.time_ns() // 1000
        commit = Commit(self.stage, self.id, now_us, self._files, meta=meta or {})
        self.lake.log(self.stage).add(commit)
        return commit


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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


def check_format(spark: SparkSession, name: str) -> str:
    """The table format for `events`. Raises `LocalError` if this Spark can't write it."""
    if name not in FORMATS:
        raise LocalError(f"{name!r} is not a table format: use {', '.join(FORMATS)}")
    if name == "parquet":
        return name
    try:
        spark.read.format(name).schema("seq bigint").load("/nowhere").isEmpty()
    except Exception as error:  # Spark raises many types here
        if "DATA_SOURCE_NOT_FOUND" in str(error) or "ClassNotFound" in str(error):
            add = f"add its package, as in --conf spark.jars.packages={_PACKAGES[name]}"
            do = f"{add} with the version for this Spark ({spark.version}), or leave out --format {name}"
            raise LocalError(f"this Spark has no table format {name!r}: {do}") from None
    return name

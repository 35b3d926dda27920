"""Writes a table's files inside Spark's tasks, with pyarrow: rows do not pass through Java one by one.

A task writes each file where it belongs, durably, under a name of its own. The driver only commits the names, so a task
that runs again, or a driver that dies, leaves files that no commit names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reknit.spark.lake.commits import LakeFile, cannot_write
from reknit.spark.lake.storage import Storage
from reknit.spark.lake.tables import MANY_TOPICS, TABLE_OF, Table, topic_key

__all__ = ["RESULTS", "TaskFiles", "TaskWriter", "lake_file"]

FLUSH_BYTES: Final = 64 << 20
"""A task writes files when it has about this many bytes of rows."""
FOLDERS_MAX: Final = 16
"""Rows of more topics and days than this share a file per day, sorted by topic."""
RESULTS: Final = (
    "table string, path string, rows bigint, bytes bigint, events bigint, "
    "day string, topic_key string, stats string"
)
_DAY_US: Final = 86_400_000_000
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name of the folder that readers take for null."""
_NOWHERE: Final = -(1 << 26)
"""Stands for the day of a row without a time."""
_UNIQUE: Final = frozenset({"payload", "data", "headers", "fields", "skip", "lost"})
"""Columns whose values do not repeat, and whose bounds help no reader."""
_GROWING: Final = frozenset({"seq", "position", "first", "start", "stop"})
_EVENTS: Final = {"batches": "count"}


class TaskFiles(NamedTuple):
    """Where tasks write, and which table each row belongs to."""

    root: str
    name: str
    """The files' names begin with it."""
    tables: Mapping[str, str]
    """The table for each value of column `what`; the empty key if there is no such column."""

    def write(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task; gives a row for each file, as `RESULTS` names them."""
        writer = TaskWriter(self)
        for chunk in chunks:
            writer.add(chunk)
        files = writer.close()
        if files:
            yield pa.RecordBatch.from_pylist(files)


def lake_file(row: Any) -> LakeFile:
    """A file from a row of `RESULTS`."""
    return LakeFile(
        row["table"],
        row["path"],
        row["rows"],
        row["bytes"],
        row["day"],
        row["topic_key"],
        events=row["events"],
        stats=row["stats"],
    )


class TaskWriter:
    """Collects the rows of a task, and writes them to files."""

    def __init__(self, plan: TaskFiles) -> None:
        self._plan = plan
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self._files: list[dict[str, Any]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; writes files now and then."""
        if not rows.num_rows:
            return
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= FLUSH_BYTES:
            self._flush()

    def close(self) -> list[dict[str, Any]]:
        """Write what is left; returns all files."""
        self._flush()
        return self._files

    def _flush(self) -> None:
        try:
            self._write_all()
        except OSError as error:
            raise cannot_write(self._plan.root, error) from None

    def _write_all(self) -> None:
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows, self._bytes = [], 0
        if "" in self._plan.tables:
            self._place(TABLE_OF[self._plan.tables[""]], rows)
            return
        for what, name in self._plan.tables.items():
            self._place(TABLE_OF[name], rows.filter(pc.equal(rows["what"], what)))

    def _place(self, table: Table, rows: pa.Table) -> None:
        """Write rows of one table to the folders of their days and topics."""
        rows = rows.select(table.names)
        if not rows.num_rows:
            return
        if not table.time:
            self._write(table, rows, "", "")
            return
        days, topics = _days(rows[table.time]), pc.fill_null(rows["topic"].combine_chunks(), "")
        named = pc.unique(topics).to_pylist()
        every_day = np.unique(days).tolist()
        is_crowded = len(named) * len(every_day) > FOLDERS_MAX
        for day in every_day:
            of_day, own = _of_day(rows, topics, days, day, len(every_day))
            if is_crowded:
                self._write(table, of_day.take(pc.sort_indices(own)), _day(day), MANY_TOPICS)
                continue
            for topic in named:
                found = of_day if len(named) == 1 else of_day.filter(pc.equal(own, topic))
                self._write(table, found, _day(day), topic_key(topic) if topic else "none")

    def _write(self, table: Table, rows: pa.Table, day: str, key: str) -> None:
        if not rows.num_rows:
            return
        parts = [f"day={day}", f"topic_key={key}"] if table.time else []
        path = "/".join([table.name, *parts, f"{self._plan.name}-{uuid4().hex[:12]}.parquet"])
        names = rows.schema.names
        size = Storage(self._plan.root).write_table(
            path,
            rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema])),
            use_dictionary=[name for name in names if name not in _UNIQUE | _GROWING],
            write_statistics=[name for name in names if name not in _UNIQUE],
        )
        self._files.append(
            {
                "table": table.name,
                "path": path,
                "rows": rows.num_rows,
                "bytes": size,
                "events": _events(table, rows),
                "day": "" if day == _NO_DAY else day,
                "topic_key": key,
                "stats": _stats(rows),
            }
        )


def _stats(rows: pa.Table) -> str:
    """The bounds of the columns that readers ask for, in Delta Lake's JSON: a reader passes over files by them."""
    named = [name for name in rows.schema.names if _has_bounds(name, rows.schema.field(name).type)]
    found = {name: pc.min_max(rows[name]).as_py() for name in named}
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            **{
                key: {name: _plain(one[end]) for name, one in found.items() if one[end] is not None}
                for key, end in (("minValues", "min"), ("maxValues", "max"))
            },
            "nullCount": {name: rows[name].null_count for name in named},
        }
    )


def _has_bounds(name: str, type: pa.DataType) -> bool:
    return name == "topic" or name in _GROWING or pa.types.is_timestamp(type)


def _plain(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(value, datetime) else value


def _events(table: Table, rows: pa.Table) -> int:
    """How many events the rows stand for."""
    if "start" in table.names and "stop" in table.names:
        sums = [pc.sum(rows[name]).as_py() or 0 for name in ("stop", "start")]
        return int(sums[0] - sums[1])
    count = _EVENTS.get(table.name)
    return int(pc.sum(rows[count]).as_py() or 0) if count else rows.num_rows


def _days(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The day of each time, as a number; `_NOWHERE` if there is none."""
    us = pc.fill_null(times.cast(pa.int64()), _DAY_US * _NOWHERE).to_numpy()
    found: npt.NDArray[np.int64] = us // _DAY_US
    return found


def _day(number: int) -> str:
    return _NO_DAY if number == _NOWHERE else str(np.datetime64(number, "D"))


def _of_day(
    rows: pa.Table, topics: pa.Array, days: npt.NDArray[np.int64], day: int, count: int
) -> tuple[pa.Table, pa.Array]:
    """The rows of a day, and their topics."""
    if count == 1:
        return rows, topics
    mask = pa.array(days == day)
    return rows.filter(mask), topics.filter(mask)

"""From settled ranges to events inside tasks: each reads files of batches with pyarrow and writes files of events.

Settled ranges lie in the same folder (day and topic) as their batches, so a task reads the ranges of its folder alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from reknit.spark.lake.commits import LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.storage import open_parquet, read_columns
from reknit.spark.lake.tables import MANY_TOPICS
from reknit.spark.lake.task_files import RESULTS, TaskFiles, TaskWriter
from reknit.spark.stages.settle.expand import EVENT_ROW, HEAD, expand_rows
from reknit.spark.stages.settle.newly_settled import SettledRanges

__all__ = ["EventsPlan", "plan_events", "write_events"]

TASK_BYTES: Final = 64 << 20
"""A task reads about this many bytes of batches."""
ROWS_AT_ONCE: Final = 64
"""Batches that a task reads at once: each may be large."""
_KEY: Final = ["node", "position", "source", "first"]
_RANGE: Final = [*_KEY, "start", "stop", "skip", "origin"]


class ExpandTask(NamedTuple):
    """Files of batches, and the files with the ranges that are in them."""

    origin: str
    batches: list[str]
    ranges: list[str]


class EventsPlan(NamedTuple):
    """What the tasks do, and how many events there will be."""

    tasks: list[ExpandTask]
    events: int


def plan_events(lake: Lake, new: SettledRanges) -> EventsPlan:
    """Decide which task reads which files. Reads the ranges alone."""
    events, from_recovered = _count_events(lake, new.pieces)
    tasks: list[ExpandTask] = []
    for folder, files in _by_folder(new.batches).items():
        ranges = [file for file in new.pieces if _may_share(folder, (file.day, file.topic_key))]
        groups = _groups(files) if ranges else ()
        tasks += [ExpandTask("batches", lake.paths(group), lake.paths(ranges)) for group in groups]
    if from_recovered:
        recovered = lake.files("recovered")
        tasks.append(ExpandTask("recovered", lake.paths(recovered), lake.paths(new.pieces)))
    return EventsPlan(tasks, events)


def write_events(spark: SparkSession, plan: EventsPlan, files: TaskFiles) -> DataFrame:
    """Run the tasks; gives a row for each file that they write (`task_files.RESULTS`)."""
    tasks = plan.tasks

    def run(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TaskWriter(files)
        for chunk in chunks:
            for number in chunk.column("id").to_pylist():
                for rows in read_events(tasks[number]):
                    writer.add(rows)
        written = writer.close()
        if written:
            yield pa.RecordBatch.from_pylist(written)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run, RESULTS)


def read_events(task: ExpandTask) -> Iterator[pa.RecordBatch]:
    """The events of a task."""
    wanted = _ranges_by_batch(task)
    if not wanted:
        return
    for path in task.batches:
        with open_parquet(path) as file:
            for rows in file.iter_batches(ROWS_AT_ONCE, columns=[*_KEY, "topic", "time", *HEAD]):
                found = _joined(rows, wanted)
                if found is not None:
                    yield from expand_rows([found])


def _ranges_by_batch(task: ExpandTask) -> dict[tuple[Any, ...], list[tuple[int, int, list[int] | None]]]:
    """The settled ranges in each batch."""
    found: dict[tuple[Any, ...], list[tuple[int, int, list[int] | None]]] = {}
    for path in task.ranges:
        rows = read_columns(path, _RANGE)
        rows = rows.filter(pc.equal(rows["origin"], task.origin)).to_pydict()
        for at in range(len(rows["start"])):
            key = tuple(rows[name][at] for name in _KEY)
            found.setdefault(key, []).append((rows["start"][at], rows["stop"][at], rows["skip"][at]))
    return found


def _joined(
    rows: pa.RecordBatch, wanted: dict[tuple[Any, ...], list[tuple[int, int, list[int] | None]]]
) -> pa.RecordBatch | None:
    """Each batch with each of its ranges, as `expand_rows` takes them."""
    keys = zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True)
    pairs = [(at, one) for at, key in enumerate(keys) for one in wanted.get(key, ())]
    if not pairs:
        return None
    taken = (
        rows if [at for at, _ in pairs] == list(range(rows.num_rows)) else rows.take([at for at, _ in pairs])
    )
    columns = {name: taken.column(name) for name in taken.schema.names}
    columns["start"] = pa.array([one[0] for _, one in pairs], pa.int64())
    columns["stop"] = pa.array([one[1] for _, one in pairs], pa.int64())
    columns["skip"] = pa.array([one[2] for _, one in pairs], pa.list_(pa.int64()))
    return pa.RecordBatch.from_pydict({name: columns[name] for name in EVENT_ROW})


def _count_events(lake: Lake, pieces: Iterable[LakeFile]) -> tuple[int, bool]:
    """How many events the ranges hold, without those that repeat others; and whether any was recovered."""
    events, from_recovered = 0, False
    for path in lake.paths(pieces):
        rows = read_columns(path, ["start", "stop", "skip", "origin"])
        sums = [pc.sum(rows[name]).as_py() or 0 for name in ("stop", "start")]
        skipped = pc.sum(pc.list_value_length(rows["skip"])).as_py() or 0
        events += sums[0] - sums[1] - skipped
        from_recovered |= "recovered" in pc.unique(rows["origin"]).to_pylist()
    return events, from_recovered


Folder = tuple[str, str]


def _by_folder(files: Iterable[LakeFile]) -> dict[Folder, list[LakeFile]]:
    found: dict[Folder, list[LakeFile]] = {}
    for file in files:
        found.setdefault((file.day, file.topic_key), []).append(file)
    return found


def _may_share(one: Folder, other: Folder) -> bool:
    """Whether rows of two folders may be of one day and topic."""
    return one[0] == other[0] and (one[1] == other[1] or MANY_TOPICS in (one[1], other[1]))


def _groups(files: Iterable[LakeFile]) -> Iterator[list[LakeFile]]:
    """Files of about `TASK_BYTES` together."""
    group: list[LakeFile] = []
    size = 0
    for file in files:
        if group and size + file.bytes > TASK_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.bytes
    if group:
        yield group

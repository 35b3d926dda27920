"""Lakes for tests: writes batches into one as capture does, without a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from reknit.batch import Batch
from reknit.spark.lake.commits import Commit, added_by
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import read
from reknit.spark.lake.task_files import TaskFiles, lake_file
from reknit.spark.source.schema import BATCHES, OUTCOMES
from reknit.spark.stages.capture import capture_batch
from reknit.spark.stages.events import events_lake
from tests.spark.cluster import Program


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Rows as a DataFrame, without a Python worker."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema.names]
    kinds = to_arrow_schema(schema, timezone="UTC")
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema.names))


def batch_row(node: str, position: int, batch: Batch) -> tuple[Any, ...]:
    """The source's row for a batch."""
    head = batch.head
    time = datetime.fromtimestamp(head.time_us / 1e6, UTC)
    start = (node, position, head.topic, head.source, head.first, head.stop, head.count, time)
    return (*start, head.ttl_ms, head.priority, head.type, head.length, bytes(batch.data))


def captured(
    spark: SparkSession, lake: Lake, id: int, batches: Iterable[Batch], node: str = "line1", position: int = 0
) -> int:
    """Capture batches as micro-batch `id`; returns the number of new rows."""
    rows = []
    for batch in batches:
        rows.append(batch_row(node, position, batch))
        position += batch.head.length
    return capture_batch(lake, "batches", frame(spark, rows, BATCHES), id)


def captured_outcomes(spark: SparkSession, lake: Lake, id: int, rows: list[dict[str, Any]]) -> int:
    """Capture rows of outcomes as micro-batch `id`."""
    full = [tuple(row.get(name) for name in OUTCOMES.names) for row in rows]
    return capture_batch(lake, "outcomes", frame(spark, full, OUTCOMES), id)


def events(spark: SparkSession, lake: Lake) -> dict[tuple[str, bytes], list[int]]:
    """Bring table `events` up to date; returns the seqs of each series in the order of the commits."""
    events_lake(spark, lake)
    rows: list[tuple[int, int, str, bytes]] = []
    for file in lake.files("events"):
        table = pq.ParquetFile(lake.root / file.path).read(["topic", "source", "seq"])
        rows += [(added_by(file), row["seq"], row["topic"], row["source"]) for row in table.to_pylist()]
    found: dict[tuple[str, bytes], list[int]] = {}
    for _, seq, topic, source in sorted(rows):
        found.setdefault((topic, source), []).append(seq)
    return found


def ranges(spark: SparkSession, lake: Lake, table: str) -> list[tuple[int, int]]:
    """The ranges in a table."""
    rows = read(spark, lake, table).select("start", "stop").collect()
    return sorted((row["start"], row["stop"]) for row in rows)


class KilledBeforeItsEnd(BaseException):
    """As a kill would, it ends everything at once: no handler of errors catches it."""


@contextmanager
def killed_at(lake: Lake, stage: str) -> Iterator[None]:
    """A block that ends where it would make a commit of this stage."""
    commit = lake.commit

    def kill(one: Commit) -> None:
        if one.stage == stage:
            raise KilledBeforeItsEnd
        commit(one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake, "commit", kill)
        yield


def wait_until(is_so: Callable[[], bool], program: Program, timeout_s: float = 400.0) -> None:
    """Wait for a condition that a running program fulfils."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert program.process.poll() is None, program.text()
        assert time.monotonic() < deadline, program.text()
        time.sleep(0.2)  # reading a lake takes a while, and takes processor time from the program


def check_events(lake: Lake, last: dict[str, int]) -> None:
    """Every event of these sources up to its last seq is in table `events` once, in order, with its own payload."""
    by_commit: dict[int, list[tuple[bytes, int, bytes]]] = {}
    for file in lake.files("events"):
        rows = pq.ParquetFile(lake.root / file.path).read(["source", "seq", "payload"])
        columns = (rows[name].to_pylist() for name in ("source", "seq", "payload"))
        by_commit.setdefault(added_by(file), []).extend(zip(*columns, strict=True))
    found: dict[str, int] = {}
    for commit in sorted(by_commit):
        for raw, seq, payload in sorted(by_commit[commit]):
            name = raw.rstrip(b".").decode()
            assert seq == found.get(name, 0) + 1, (name, seq, found)
            assert payload == b"%s-%d" % (name.encode(), seq)
            found[name] = seq
    assert found == last


def write_events(folder: Path, counts: dict[str, int]) -> Lake:
    """A lake whose table `events` has this many events of each topic, written as tasks do."""
    lake, files = Lake.create(folder), []
    for topic, count in counts.items():
        rows = {
            "topic": pa.array([topic] * count),
            "source": pa.array([bytes(16)] * count, pa.binary()),
            "seq": pa.array(range(1, count + 1), pa.int64()),
            "time": pa.array([0] * count, pa.timestamp("us", "UTC")),
            **{name: pa.array([1] * count, pa.int32()) for name in ("ttl_ms", "priority", "type")},
            "payload": pa.array([b"x"] * count, pa.binary()),
            "headers": pa.nulls(count, pa.map_(pa.string(), pa.string())),
        }
        results = TaskFiles(str(lake.root), "events-0-ab", {"": "events"}).write(
            [pa.RecordBatch.from_pydict(rows)]
        )
        files += [lake_file(row) for one in results for row in one.to_pylist()]
    lake.log("events").add(Commit("events", 0, 0, files, meta={"through": 0}))
    return lake

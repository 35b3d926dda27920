"""Tasks turn settled ranges into events with the files alone: no Spark, no row of Java."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reknit.batch import Batch
from reknit.spark.lake.commits import Commit, LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.task_files import TaskFiles, lake_file
from reknit.spark.stages.checks import DoesNotAddUp, check_sum
from reknit.spark.stages.settle.expand_files import plan_events, read_events
from reknit.spark.stages.settle.newly_settled import newly_settled
from tests.spark.lakes import batch_row
from tests.spark.running_node import TIME_US, batch, batches, source

TIME = pa.timestamp("us", "UTC")
BATCH_COLUMNS = (
    *("node", "position", "topic", "source", "first", "stop", "count", "time"),
    *("ttl_ms", "priority", "type", "length", "data"),
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def write(lake: Lake, table: str, rows: list[dict[str, Any]]) -> list[LakeFile]:
    """Write rows as a task does."""
    times = {name: TIME for name in ("time", "noticed") if name in rows[0]}
    made = pa.Table.from_pylist(rows)
    for name, kind in times.items():
        made = made.set_column(made.schema.get_field_index(name), name, made[name].cast(kind))
    if "skip" in rows[0]:
        at = made.schema.get_field_index("skip")
        made = made.set_column(at, "skip", made["skip"].cast(pa.list_(pa.int64())))
    results = TaskFiles(str(lake.root), f"{table}-0-ab", {"": table}).write(made.to_batches())
    return [lake_file(row) for one in results for row in one.to_pylist()]


def settled(lake: Lake, *ranges: tuple[Batch, int, int, list[int] | None], origin: str = "batches") -> None:
    """A lake in which these ranges of these batches are settled."""
    rows, pieces = [], []
    for position, (one, start, stop, skip) in enumerate(ranges):
        values = dict(zip(BATCH_COLUMNS, batch_row("n", position, one), strict=True))
        rows.append({**values, "columns_bytes": 0})
        pieces.append(
            {
                "topic": one.topic,
                "source": one.source,
                "start": start,
                "stop": stop,
                "first": one.first,
                "node": "n",
                "position": position,
                "origin": origin,
                "time": values["time"],
                "columns_bytes": 0,
                "skip": skip,
            }
        )
    files = write(lake, origin, rows)
    if origin == "batches":
        lake.log("capture_batches").add(Commit("capture_batches", 0, 0, files))
        files = []
    meta = {"through": 0, "since": -1}
    lake.log("settle").add(Commit("settle", 0, 0, files + write(lake, "settled", pieces), meta=meta))


def found(lake: Lake) -> tuple[int, list[dict[str, Any]]]:
    """How many events are planned, and the events of all tasks."""
    new = newly_settled(lake, "events")
    assert new is not None
    plan = plan_events(lake, new)
    return plan.events, [row for task in plan.tasks for rows in read_events(task) for row in rows.to_pylist()]


def test_only_settled_parts_of_batches_become_events(lake: Lake) -> None:
    one, two, other = *batches("a", 1, 21), batch("b", 1, ["x"] * 5, topic="plant/hum")
    settled(lake, (one, 1, 11, None), (two, 15, 18, [16]), (other, 2, 3, None))
    planned, events = found(lake)
    assert planned == len(events) == 13
    assert [(e["topic"], e["seq"], e["payload"]) for e in events if e["seq"] > 10] == [
        ("plant/temp", 15, b"a-15"),
        ("plant/temp", 17, b"a-17"),
    ]
    assert {(bytes(e["source"]), e["seq"]) for e in events if e["topic"] == "plant/hum"} == {(source("b"), 2)}


def test_events_of_files_with_many_topics(lake: Lake) -> None:
    settled(lake, *((batch("a", 1, ["x"], topic=f"t/{n}"), 1, 2, None) for n in range(40)))
    assert {file.topic_key for file in lake.files("batches")} == {"many"}
    planned, events = found(lake)
    assert planned == len(events) == 40
    assert {event["topic"] for event in events} == {f"t/{n}" for n in range(40)}


def test_recovered_batches_become_events(lake: Lake) -> None:
    settled(lake, (batches("a", 1, 11)[0], 3, 6, None), origin="recovered")
    planned, events = found(lake)
    assert (planned, [event["seq"] for event in events]) == (3, [3, 4, 5])


def test_event_with_a_time_and_a_ttl_of_its_own_keeps_them(lake: Lake) -> None:
    columns = {"time": [TIME_US + 1, TIME_US + 2], "ttl": [7, 8], "headers": [{"a": "b"}, None]}
    settled(
        lake, (batch("a", 1, ["x", "y"], columns=columns), 1, 3, None), (batch("a", 3, ["z"]), 3, 4, None)
    )
    _, events = found(lake)
    shared = datetime.fromtimestamp(TIME_US / 1e6, UTC)
    assert [event["time"].microsecond - shared.microsecond for event in events] == [1, 2, 0]
    assert [event["ttl_ms"] for event in events] == [7, 8, 0]
    assert [event["headers"] for event in events] == [[("a", "b")], None, None]


def test_missing_batch_is_noticed(lake: Lake) -> None:
    """What compaction once did: the ranges are there, and the file with their batches is not."""
    settled(lake, (batches("a", 1, 11)[0], 1, 11, None))
    new = newly_settled(lake, "events")
    assert new is not None
    planned = plan_events(lake, new._replace(batches=[]))
    assert (planned.tasks, planned.events) == ([], 10)
    with pytest.raises(DoesNotAddUp, match="10 settled events, but 0 rows; nothing was committed"):
        check_sum("events", "settled events", planned.events, "rows", 0)

"""Files that tasks write: a folder per day and topic, or one per day for many topics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reknit.spark.lake import task_files
from reknit.spark.lake.commits import LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.tables import MANY_TOPICS, TABLE_OF, topic_key
from reknit.spark.lake.task_files import FOLDERS_MAX, TaskFiles, lake_file

TIME = pa.timestamp("us", "UTC")


def losses(topics: list[str], day: int | list[int | None] = 1, **columns: list[Any]) -> pa.RecordBatch:
    """Rows of table `losses`, of ten events each."""
    size = len(topics)
    days = [day] * size if isinstance(day, int) else day
    times = [None if one is None else datetime(2026, 1, one, 12, tzinfo=UTC) for one in days]
    own = {
        "topic": pa.array(topics, pa.string()),
        "source": [b"s" * 16] * size,
        "start": pa.array([1] * size, pa.int64()),
        "stop": pa.array([11] * size, pa.int64()),
        "reason": ["missing"] * size,
        "noticed": pa.array(times, TIME),
        "time": pa.array(times, TIME),
    }
    return pa.RecordBatch.from_pydict({**own, **columns})


def write(root: Path, *chunks: pa.RecordBatch, **tables: str) -> list[LakeFile]:
    plan = TaskFiles(str(root), "settle-0-ab", tables or {"": "losses"})
    return [lake_file(row) for results in plan.write(chunks) for row in results.to_pylist()]


def read(root: Path, file: LakeFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(root / file.path).read().to_pylist()
    return rows


def test_each_day_and_topic_has_its_folder(tmp_path: Path) -> None:
    files = write(tmp_path, losses(["a", "b", "a"]), losses(["a", "b"], [2, None]))
    assert sorted((file.day, file.topic_key[0], file.rows, file.events) for file in files) == [
        ("", "b", 1, 10),
        ("2026-01-01", "a", 2, 20),
        ("2026-01-01", "b", 1, 10),
        ("2026-01-02", "a", 1, 10),
    ]
    for file in files:
        assert file.path.startswith(
            f"losses/day={file.day or '__HIVE_DEFAULT_PARTITION__'}/topic_key={file.topic_key}/settle-0-ab-"
        )
        assert {topic_key(row["topic"]) for row in read(tmp_path, file)} == {file.topic_key}
        assert (tmp_path / file.path).stat().st_size == file.bytes


def test_many_topics_share_a_file_sorted_by_topic(tmp_path: Path) -> None:
    topics = [f"t/{number % (FOLDERS_MAX + 1):02d}" for number in range(100)]
    [file] = write(tmp_path, losses(topics))
    assert (file.topic_key, file.rows) == (MANY_TOPICS, 100)
    assert [row["topic"] for row in read(tmp_path, file)] == sorted(topics)
    assert file.may_hold({topic_key("t/01")})
    assert len(write(tmp_path, losses(topics[:FOLDERS_MAX]))) == FOLDERS_MAX


def test_column_what_says_the_table(tmp_path: Path) -> None:
    rows = losses(["a", "a", "a"], what=["lost", "gone", "lost"])
    [file] = write(tmp_path, rows, lost="losses")
    assert (file.table, file.rows) == ("losses", 2)
    assert list(read(tmp_path, file)[0]) == TABLE_OF["losses"].names


def test_large_tasks_write_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "FLUSH_BYTES", 1)
    assert [file.rows for file in write(tmp_path, losses(["a"]), losses(["a", "a"]))] == [1, 2]
    assert write(tmp_path, losses([])) == []


def test_row_without_a_topic_is_kept(tmp_path: Path) -> None:
    [file] = write(tmp_path, losses(["x"], topic=pa.array([None], pa.string())))
    assert (file.topic_key, file.rows) == ("none", 1)


def test_files_of_many_topics_are_found_for_each(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    assert not LakeFile("events", "x", 1, 1, "2026-01-01", "a").may_hold({"b"})
    assert lake.files("events", topic_keys=["a"]) == []

"""A lake's commits: committed files count, others are ignored."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reknit.spark.lake.commits import Commit, LakeError, LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.maintenance import compact, expire, prune_runs
from reknit.spark.lake.tables import TABLE_OF, TABLES, topic_key


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def put(
    lake: Lake, id: int, seqs: list[int], day: str = "2026-01-01", table: str = "dead_letters"
) -> LakeFile:
    """Commit a file with these rows."""
    folder = lake.root / table / f"day={day}" / "topic_key=a"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}-{id}-ab.parquet"
    pq.write_table(pa.table({"seq": seqs}), path)
    file = LakeFile(table, str(path.relative_to(lake.root)), len(seqs), path.stat().st_size, day, "a")
    lake.log(TABLE_OF[table].stage).add(Commit(TABLE_OF[table].stage, id, 0, [file], meta={"through": id}))
    return file


def rows(lake: Lake, table: str = "dead_letters") -> list[int]:
    tables = [pq.ParquetFile(path).read().column("seq").to_pylist() for path in lake.paths(lake.files(table))]
    return sorted(seq for table in tables for seq in table)


def test_file_that_no_commit_names_does_not_exist(lake: Lake) -> None:
    file = put(lake, 0, [1, 2])
    other = lake.root / Path(file.path).with_name("left-over.parquet")
    pq.write_table(pa.table({"seq": [3]}), other)
    assert rows(lake) == [1, 2]


def test_commit_is_made_once(lake: Lake) -> None:
    put(lake, 0, [1])
    with pytest.raises(LakeError, match="commit 0 of stage dead_letters already exists"):
        put(lake, 0, [1])
    assert rows(lake) == [1]


def test_commits_of_a_range_are_read_alone(lake: Lake) -> None:
    for id in range(4):
        put(lake, id, [id])
    assert [file.commit for file in lake.files("dead_letters", 0, 2)] == [1, 2]


def test_compaction_keeps_every_row(lake: Lake) -> None:
    for id in range(5):
        put(lake, id, [2 * id, 2 * id + 1])
    done = compact(lake, keep_s=0)
    assert (done.files_before, done.files_after, done.files_deleted) == (5, 1, 5)
    assert rows(lake) == list(range(10))
    log = Lake(lake.root).log("dead_letters")
    assert [log.has(id) for id in range(6)] == [True] * 5 + [False]
    put(lake, 5, [10])
    assert rows(Lake(lake.root)) == list(range(11))


def test_runs_that_nothing_needs_are_pruned(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reknit.spark.lake.runs.KEPT", 3)
    for id in range(12):
        put(lake, id, [id])
    assert prune_runs(lake, commits_max=12) == 0
    assert prune_runs(lake, commits_max=11) == 9
    for one in (lake, Lake(lake.root)):
        assert [commit.id for commit in one.log("dead_letters").commits()] == [9, 10, 11]
        assert one.runs.size("dead_letters") == 1
        assert rows(one) == list(range(12))
        assert [file.commit for file in one.files("dead_letters", 9, 11)] == [10, 11]
    put(lake, 12, [12])
    last = Lake(lake.root).log("dead_letters").last()
    assert last is not None
    assert last.id == 12


def test_replaced_files_stay_for_whoever_reads_them(lake: Lake) -> None:
    files = [put(lake, id, [id]) for id in range(2)]
    compact(lake, keep_s=3600)
    assert all((lake.root / file.path).exists() for file in files)
    assert rows(lake) == [0, 1]
    compact(lake, keep_s=0)
    assert not any((lake.root / file.path).exists() for file in files)


def test_old_days_expire(lake: Lake) -> None:
    put(lake, 0, [1], "2026-01-01")
    put(lake, 1, [2], "2026-01-02")
    done = expire(lake, "2026-01-02", keep_s=0)
    assert (done.files_expired, done.rows_expired, done.files_deleted) == (1, 1, 1)
    assert rows(lake) == [2]


def test_what_a_stage_waits_for_is_not_touched(lake: Lake) -> None:
    for id in range(3):
        put(lake, id, [id], table="batches")
    assert compact(lake, keep_s=0).files_before == 0
    assert expire(lake, "2027-01-01", keep_s=0).files_expired == 0
    assert rows(lake, "batches") == [0, 1, 2]


def test_second_writer_is_refused(lake: Lake) -> None:
    with lake.locked(), pytest.raises(LakeError, match="another process writes"), Lake(lake.root).locked():
        pass


def test_lake_of_another_format_is_refused(lake: Lake) -> None:
    (lake.root / "lake.json").write_text('{"format": 99, "id": "x"}')
    with pytest.raises(LakeError, match="format 99"):
        Lake(lake.root)


def test_missing_lake_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no such folder; use the folder"):
        Lake(tmp_path / "nowhere")


@pytest.mark.parametrize("topic", ["a/b", "a.b", "a b", "ä/ö", "x" * 1000, "..", "a%2Fb"])
def test_topic_makes_a_safe_folder(topic: str) -> None:
    key = topic_key(topic)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,61}", key)
    assert len({topic_key(other) for other in (topic, topic + "x", "y" + topic)}) == 3


def test_every_table_and_column_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/tables.md").read_text()
    for table in TABLES:
        section = page.split(f"## {table.name}\n", 1)[1].split("\n## ", 1)[0]
        for column in table.columns:
            assert f"| `{column.name}` | {column.type} | {column.doc} |" in section


def test_nothing_here_needs_spark() -> None:
    code = "import sys, reknit.spark.lake.history, reknit.spark.lake.maintenance; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""`reknit pipeline compact` and `expire`, which need no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from reknit.cli.main import app
from reknit.spark.lake.commits import Commit, LakeFile
from reknit.spark.lake.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Dead letters of two days, a file each."""
    lake = Lake.create(tmp_path / "lake")
    for id, day in enumerate(("2026-01-01", "2026-01-02")):
        path = lake.root / "dead_letters" / f"day={day}" / "topic_key=a" / "one.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"seq": [1, 2]}), path)
        file = LakeFile("dead_letters", str(path.relative_to(lake.root)), 2, path.stat().st_size, day, "a")
        lake.log("dead_letters").add(Commit("dead_letters", id, 0, [file], meta={"through": id}))
    return lake


def run(lake: Lake, *args: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", args[0], "--lake", str(lake.root), *args[1:]])


@pytest.mark.parametrize(
    ("args", "days"),
    [
        (["--before", "2026-01-02"], ["2026-01-02"]),
        (["--before", "2026-01-03"], []),
        (["--older-than", "1"], []),
        (["--before", "2026-01-03", "--table", "events"], ["2026-01-01", "2026-01-02"]),
    ],
)
def test_expire_removes_the_days_that_are_named(lake: Lake, args: list[str], days: list[str]) -> None:
    result = run(lake, "expire", *args, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["files_expired"] == 2 - len(days)
    assert [file.day for file in lake.files("dead_letters")] == days


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ([], "name the days to remove"),
        (["--before", "yesterday"], "name the days to remove"),
        (["--before", "2026-01-02", "--table", "coverage"], "'coverage' is not a table that can expire"),
    ],
)
def test_expire_refuses_what_it_can_not_do(lake: Lake, args: list[str], error: str) -> None:
    result = run(lake, "expire", *args)
    assert result.exit_code != 0
    assert error in result.output
    assert len(lake.files("dead_letters")) == 2


def test_compact_says_what_it_did(lake: Lake) -> None:
    result = run(lake, "compact", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["files_before"] == 0  # one file a folder is left alone

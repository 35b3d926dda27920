"""Other tools read a lake's tables with what they have for Delta Lake."""

from __future__ import annotations

from pathlib import Path

import polars
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from reknit.spark.lake.lake import Lake
from reknit.spark.lake.maintenance import compact, expire
from tests.spark.lakes import write_events

COUNTS = {"plant/a": 5, "plant/b": 3}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_events(tmp_path / "lake", COUNTS)


def test_polars(lake: Lake) -> None:
    events = polars.scan_delta(str(lake.root / "events"))
    rows = events.filter(polars.col("topic") == "plant/b").select("seq", "payload", "day").collect()
    assert rows["seq"].to_list() == [1, 2, 3]
    assert rows["payload"][0] == b"x"
    assert {str(day) for day in rows["day"]} == {"1970-01-01"}


def test_pandas(lake: Lake) -> None:
    events = DeltaTable(str(lake.root / "events")).to_pandas(columns=["topic", "seq", "time"])
    assert events.groupby("topic")["seq"].max().to_dict() == COUNTS


def test_bounds_let_a_reader_pass_over_files(lake: Lake) -> None:
    topics = DeltaTable(str(lake.root / "events")).to_pyarrow_dataset().get_fragments
    [only] = topics(filter=ds.field("topic") == "plant/b")
    assert "plant_b" in only.path
    assert not list(topics(filter=ds.field("seq") > 5))


def test_earlier_version_is_readable_until_its_files_are_deleted(lake: Lake) -> None:
    folder = str(lake.root / "events")
    version = DeltaTable(folder).version()
    assert expire(lake, "2026-01-01").rows_expired == 8
    assert polars.read_delta(folder).height == 0
    assert polars.read_delta(folder, version=version).height == 8
    compact(lake, keep_s=0)
    assert lake.files("events") == []
    assert not list((lake.root / "events").glob("day=*/*/*.parquet"))


def test_every_commit_is_a_row_of_runs(lake: Lake) -> None:
    [row] = polars.read_delta(str(lake.root / "runs")).to_dicts()
    assert (row["stage"], row["run"], row["rows"], row["meta"]) == ("events", 0, 8, '{"through":0}')

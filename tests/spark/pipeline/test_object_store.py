"""The whole pipeline on a lake in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from reknit.spark.data_source import ReknitDataSource
from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.pipeline import Pipeline, PipelineSettings
from reknit.spark.stages.audit.lake import audit_lake
from tests.spark.object_store import BUCKET, object_store
from tests.spark.running_node import RunningNode, batches

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.timeout(600)]
URL = f"s3://{BUCKET}/lake"


@pytest.fixture
def store(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store that the driver and Spark's workers find."""
    with object_store() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        yield


def test_runs_add_what_is_new_to_a_lake_in_an_object_store(
    spark: SparkSession, node: RunningNode, tmp_path: Path, store: None
) -> None:
    spark.dataSource.register(ReknitDataSource)
    lake = Lake.create(URL, tmp_path / "work")
    for first in (1, 51):
        node.keep(batches("a", first, first + 50))
        figures = Pipeline(spark, lake, PipelineSettings((node.url,), is_once=True)).run()
        assert (figures.settled, figures.events, figures.lost) == (50, 50, 0)
    rows = DeltaTable(f"{URL}/events").to_pyarrow_table(columns=["seq", "payload"]).sort_by("seq")
    assert rows["seq"].to_pylist() == list(range(1, 101))
    assert rows["payload"].to_pylist() == [b"a-%d" % seq for seq in range(1, 101)]
    assert audit_lake(spark, Lake(URL, tmp_path / "other")).events == 100
    assert [file.rows for file in lake.table("coverage").files()] == [1]

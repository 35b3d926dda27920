"""The fabric and a lake in SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reknit.spark.lake.spark_tables import create_views
from tests.spark.lakes import write_events
from tests.spark.running_node import RunningNode, batches

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_topics_are_a_view(spark: SparkSession, node: RunningNode) -> None:
    node.keep(batches("t", 1, 31, topic="plant/x") + batches("t", 1, 11, topic="office/y"))
    spark.sql(f"CREATE TEMPORARY VIEW plant USING reknit OPTIONS (nodes '{node.url}', topics 'plant/**')")
    rows = spark.sql("SELECT count(*), max(seq) FROM plant WHERE seq > 5").collect()
    assert [tuple(row) for row in rows] == [(25, 30)]


def test_table_in_a_catalog_is_refused_with_what_to_write(spark: SparkSession, node: RunningNode) -> None:
    with pytest.raises(PySparkException, match="write CREATE TEMPORARY VIEW name USING reknit"):
        spark.sql(f"CREATE TABLE plants USING reknit OPTIONS (nodes '{node.url}')")


def test_tables_of_a_lake_are_views(spark: SparkSession, tmp_path: Path) -> None:
    lake = write_events(tmp_path / "lake", {"plant/a": 5, "plant/b": 3})
    create_views(spark, lake, "lake_")
    rows = spark.sql("SELECT topic, count(*) FROM lake_events GROUP BY topic ORDER BY topic").collect()
    assert [tuple(row) for row in rows] == [("plant/a", 5), ("plant/b", 3)]
    assert spark.table("lake_losses").count() == 0

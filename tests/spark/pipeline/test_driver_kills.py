"""The whole pipeline through kill -9 of itself: every event is in the tables once, and in order."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reknit.spark.data_source import ReknitDataSource
from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.pipeline import Pipeline, PipelineSettings
from tests.spark.cluster import KILLS, start_pipeline
from tests.spark.lakes import check_events, ranges, wait_until
from tests.spark.running_node import Feeder, RunningNode

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.timeout(300 + 400 * KILLS)]


def test_driver_killed_at_random_moments_while_events_flow(
    spark: SparkSession, node: RunningNode, tmp_path: Path
) -> None:
    """Each event is in the tables once, in order per source; at the end, Java is stopped together with its driver."""
    lake = Lake.create(tmp_path / "lake")
    rng = random.Random(7)
    with Feeder(node.keep, ("a", "b")) as feeder:
        for _ in range(KILLS):
            with start_pipeline(lake.root, tmp_path / "pipeline.log", node.url) as pipeline:
                log = lake.log(rng.choice(["capture_batches", "capture_outcomes", "settle", "events"]))
                before = log.last()
                wait_until(lambda: log.last() != before, pipeline)  # noqa: B023
                time.sleep(rng.random() * 2)
                pipeline.kill()
        check_stopped_with_java(lake, tmp_path / "stopped.log", node.url)
        published = feeder.stop()
    spark.dataSource.register(ReknitDataSource)
    figures = Pipeline(spark, lake, PipelineSettings((node.url,), is_once=True)).run()
    assert figures.lost == figures.held == 0
    check_events(lake, {"a": published, "b": published})
    settled = ranges(spark, lake, "settled")
    assert sum(stop - start for start, stop in settled) == 2 * published


def check_stopped_with_java(lake: Lake, log: Path, url: str) -> None:
    """A service manager stops all processes of a service at once: that is not reported as a failure."""
    with start_pipeline(lake.root, log, url) as pipeline:
        before = lake.log("settle").last()
        wait_until(lambda: lake.log("settle").last() != before, pipeline)
        code = pipeline.end_group()
        told = pipeline.text()
    assert code == 0, told
    assert "events settled from" in told
    assert "Traceback" not in told, told

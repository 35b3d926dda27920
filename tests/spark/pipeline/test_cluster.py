"""The whole pipeline on a standalone cluster: workers are killed while it runs, and each event is written once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reknit.spark.lake.lake import Lake
from reknit.spark.runtime.session import LOCAL_SETTINGS
from tests.spark.cluster import Cluster, Program, conf, executor_of, pipeline_command
from tests.spark.lakes import check_events, wait_until
from tests.spark.quick import SMALL_QUERIES
from tests.spark.running_node import Feeder, RunningNode

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(720)]

CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
SETTINGS = {
    **SMALL_QUERIES,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    # A killed executor does not come back, so waiting for it is pointless.
    "spark.shuffle.io.retryWait": "200ms",
    "spark.locality.wait": "0s",
    CHECKPOINTS: LOCAL_SETTINGS[CHECKPOINTS],
}


def settled(lake: Lake) -> int:
    """How many events are in table `events`."""
    return sum(file.rows for file in lake.files("events"))


def test_worker_and_executor_killed_on_the_way_leave_every_event_once(
    tmp_path: Path, node: RunningNode
) -> None:
    lake = Lake.create(tmp_path / "lake")
    with Cluster(tmp_path) as cluster, Feeder(node.keep, ("a", "b")) as feeder:
        command = pipeline_command(lake.root, node.url, "--master", cluster.url, *conf(SETTINGS))
        with Program(command, tmp_path / "pipeline.log") as pipeline:
            wait_until(lambda: settled(lake) > 0, pipeline)
            for worker in cluster.workers:
                worker.wait_for("Launching executor|Asked to launch executor")
            before = settled(lake)
            cluster.workers[0].kill()
            wait_until(lambda: settled(lake) > before, pipeline)
            executor, before = executor_of(cluster.workers[1]), settled(lake)
            assert executor is not None
            os.kill(executor, signal.SIGKILL)  # its worker starts another
            wait_until(lambda: settled(lake) > before, pipeline)
            assert executor_of(cluster.workers[1]) != executor
            published = feeder.stop()
            wait_until(lambda: settled(lake) >= 2 * published, pipeline)
            assert pipeline.end() == 0, pipeline.text()
    check_events(lake, {"a": published, "b": published})

"""The whole pipeline through kill -9 of its nodes: every event is in the tables once, and in order."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from reknit.batch import Batch
from reknit.processes.process import NodeProcess, ending
from reknit.spark.lake.lake import Lake
from tests.spark.cluster import KILLS, start_pipeline
from tests.spark.lakes import check_events, wait_until
from tests.spark.running_node import Feeder, keep_on

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.timeout(300 + 400 * KILLS)]


def in_table(lake: Lake) -> int:
    """How many events are in table `events`."""
    return sum(file.rows for file in lake.files("events"))


def test_nodes_killed_and_started_again_while_the_pipeline_runs(tmp_path: Path) -> None:
    """The pipeline resumes by itself; each event of either node is written once, in order per source."""
    lake = Lake.create(tmp_path / "lake")
    rng = random.Random(8)
    nodes = [NodeProcess(tmp_path, name=name) for name in ("one", "two")]

    def keep(new: list[Batch]) -> None:
        for one in new:
            keep_on(nodes[one.source[0] == ord("b")].url, [one])

    with ending(*nodes):
        for node in nodes:
            node.start()
        urls = [node.url for node in nodes]
        with (
            Feeder(keep, ("a", "b")) as feeder,
            start_pipeline(lake.root, tmp_path / "log", *urls) as pipeline,
        ):
            for kill in range(2 * KILLS):
                node, before = nodes[kill % 2], in_table(lake)
                wait_until(lambda: in_table(lake) > before, pipeline)  # noqa: B023
                node.kill()
                time.sleep(rng.random())
                node.start()
            published = feeder.stop()
            wait_until(lambda: in_table(lake) >= 2 * published, pipeline)
            assert pipeline.end() == 0, pipeline.text()
    check_events(lake, {"a": published, "b": published})
    assert [node.kills for node in nodes] == [KILLS + 1] * 2  # and once at the end

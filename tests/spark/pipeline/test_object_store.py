"""The whole pipeline on a lake in an object store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from reknit.spark.lake.lake import Lake
from tests.spark.cluster import Program, conf
from tests.spark.object_store import BUCKET, object_store
from tests.spark.quick import SMALL_QUERIES
from tests.spark.running_node import RunningNode, batches

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]
# Two runs of the command, each with a Spark of its own: its workers have to start with the store's environment.


def test_runs_add_what_is_new_to_a_lake_in_an_object_store(
    node: RunningNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{BUCKET}/lake"
    with object_store() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for first, settled in ((1, 50), (51, 50)):
            node.keep(batches("a", first, first + 50))
            assert run_once(url, tmp_path, node.url).startswith(f"{settled} events settled")
        rows = DeltaTable(f"{url}/events").to_pyarrow_table(columns=["seq", "payload"]).sort_by("seq")
        assert rows["seq"].to_pylist() == list(range(1, 101))
        assert rows["payload"].to_pylist() == [b"a-%d" % seq for seq in range(1, 101)]
        lake = Lake(url, tmp_path / "work")
        assert sum(file.rows for file in lake.table("coverage").files()) == 1
        assert len(lake.log("settle").commits()) == 2


def run_once(url: str, folder: Path, node: str) -> str:
    """Run the pipeline to its end; returns its last line."""
    work = ["--work", str(folder / "work"), "--memory", "1g", "--master", "local[2]"]
    command = ["-c", "from reknit.cli.main import main; main()", "pipeline", "run", "--once", "--lake", url]
    log = folder / "run.log"
    with Program([sys.executable, *command, "--nodes", node, *work, *conf(SMALL_QUERIES)], log) as program:
        assert program.process.wait(400) == 0, program.text()
        return program.text().splitlines()[-1]

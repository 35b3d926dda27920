"""The stages as a Spark Declarative Pipeline: `spark-pipelines run`, twice, on a real node."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyspark
import pytest

from tests.spark.cluster import Program
from tests.spark.pipeline.test_pipeline import ask_ledger, take
from tests.spark.quick import SMALL_QUERIES
from tests.spark.running_node import RunningNode, batches, source

pytest.importorskip("grpc", reason="needs reknit[pipelines]")

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

HOME = Path(pyspark.__file__).parent
SPEC = """
name: fabric
storage: {storage}
libraries:
  - glob:
      include: fabric.py
"""
DEFINITIONS = """
from reknit.spark.pipeline.declarative import define

define(nodes="{url}")
"""
CONF = """
spark.ui.enabled false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.memory 1g
spark.driver.extraJavaOptions -Dderby.system.home={folder}/derby
spark.sql.catalogImplementation hive
spark.sql.shuffle.partitions 2
spark.sql.warehouse.dir {warehouse}
"""


def make_pipeline(folder: Path, url: str) -> None:
    (folder / "spark-pipeline.yml").write_text(SPEC.format(storage=(folder / "storage").as_uri()))
    (folder / "fabric.py").write_text(DEFINITIONS.format(url=url))
    conf = CONF.format(folder=folder, warehouse=(folder / "warehouse").as_uri())
    small = "".join(f"{name} {value}\n" for name, value in SMALL_QUERIES.items())
    (folder / "spark.conf").write_text(conf + small)


def update(folder: Path) -> None:
    env = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(HOME),
        # Not as a folder of its own: that would be on Java's class path and disable its archive of classes.
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {folder / 'spark.conf'} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    spec = ["--spec", str(folder / "spark-pipeline.yml")]
    command = [str(HOME / "bin" / "spark-pipelines"), "--remote", "local[2]", "run", *spec]
    with Program(command, folder / "log", env) as program:
        assert program.process.wait(280) == 0, program.text()


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    files = ds.dataset(folder / "warehouse" / name, format="parquet", exclude_invalid_files=True)
    rows: list[dict[str, Any]] = files.to_table().to_pylist()
    return rows


def seqs(rows: list[dict[str, Any]], name: str) -> list[int]:
    return sorted(row["seq"] for row in rows if row["source"] == source(name))


def test_updates_add_what_is_new_and_agree_with_the_node(
    tmp_path: Path, node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_pipeline(tmp_path, node.url)
    node.keep([*batches("a", 1, 301, 50), *batches("b", 1, 101)])
    update(tmp_path)
    assert seqs(table(tmp_path, "events"), "a") == list(range(1, 301))

    node.keep([*batches("a", 301, 401), *batches("c", 1, 11)])
    asyncio.run(take(node.url, "store", "plant/temp", 200, lambda event: event.seq % 50 == 0))
    update(tmp_path)
    events = table(tmp_path, "events")
    assert seqs(events, "a") == list(range(1, 401))
    assert seqs(events, "b") == list(range(1, 101))
    assert seqs(events, "c") == list(range(1, 11))
    assert {row["payload"] for row in events if row["source"] == source("c")} == {
        b"c-%d" % seq for seq in range(1, 11)
    }
    assert table(tmp_path, "losses") == []
    letters = table(tmp_path, "dead_letters")
    assert {(row["seq"], row["subscriber"], row["reason"]) for row in letters} >= {(50, "store", "rejected")}
    names = ("subscriber", "topic", "published", "accepted", "dead_lettered", "lost", "in_flight")
    [found] = [tuple(row[name] for name in names) for row in table(tmp_path, "ledger")]
    assert [found] == [tuple(row[name] for name in names) for row in asyncio.run(ask_ledger(node.url))]
    assert found[:5] == ("store", "plant/temp", 510, 200 - len(letters), len(letters))

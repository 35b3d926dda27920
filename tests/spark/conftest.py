from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reknit.spark.runtime.session import build_session
from tests.spark.quick import SMALL_QUERIES, quick_environ
from tests.spark.running_node import RunningNode


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: starting it takes longer than most tests."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = {"spark.sql.warehouse.dir": warehouse.as_uri(), **SMALL_QUERIES}
    os.environ.update(quick_environ())
    session = build_session("local[2]", "tests", settings, memory="1g")
    yield session
    session.stop()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., RunningNode]]:
    """Starts nodes, each with a journal on disk, and stops them after the test."""
    started: list[RunningNode] = []

    def make(name: str = "line1", **settings: Any) -> RunningNode:
        node = RunningNode(tmp_path / name, name, **settings)
        started.append(node)
        return node

    yield make
    for node in started:
        node.close()


@pytest.fixture
def node(make_node: Callable[..., RunningNode]) -> RunningNode:
    """A node with an empty journal."""
    return make_node()

"""What the pipeline asks nodes before Spark starts, and what it reads of them beside the wanted topics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from reknit.spark.lake.commits import Commit, LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.nodes import NodesAway, is_up_to_date
from reknit.spark.pipeline.pipeline import PipelineSettings
from reknit.spark.source.filters import BatchFilter
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.partitions import PartitionReader
from reknit.spark.source.query_nodes import QueryNodes
from reknit.spark.source.schema import BATCHES
from tests.spark.running_node import RunningNode, batches

pytestmark = pytest.mark.real


def captured(lake: Lake, id: int, offsets: dict[str, int]) -> None:
    for stage in ("capture_batches", "capture_outcomes"):
        lake.log(stage).add(Commit(stage, id, 0, meta={"offsets": offsets}))


def processed(lake: Lake, stage: str, id: int, through: int, *files: LakeFile) -> None:
    lake.log(stage).add(Commit(stage, id, 0, list(files), meta={"through": through}))


def test_lake_that_has_everything_needs_no_run(tmp_path: Path) -> None:
    lake, ends = Lake.create(tmp_path), {"line1@e1": 640, "line2@e2": 64}
    answers = [is_up_to_date(lake, ends, True)]
    captured(lake, 0, ends)
    answers.append(is_up_to_date(lake, ends, True))
    processed(lake, "settle", 0, 0)
    processed(lake, "dead_letters", 0, 0)
    answers.append(is_up_to_date(lake, ends, True))
    assert answers == [False] * 3
    assert is_up_to_date(lake, ends, with_events=False)
    processed(lake, "events", 0, 0)
    assert is_up_to_date(lake, ends, True)
    for other in ({"line1@e1": 641, "line2@e2": 64}, {"line1@e9": 640}, {**ends, "line3@e3": 0}):
        assert not is_up_to_date(lake, other, True)
    captured(lake, 1, ends)
    assert not is_up_to_date(lake, ends, True)
    processed(lake, "settle", 1, 1, LakeFile("held", "held/x.parquet", 1, 1))
    processed(lake, "dead_letters", 1, 1)
    processed(lake, "events", 1, 1)
    assert not is_up_to_date(lake, ends, True)  # a gap may be filled, or given up


def read_topics(node: RunningNode, **options: Any) -> set[str]:
    """The topics that tasks read from a node."""
    wanted = SourceOptions.read({"nodes": node.url, "rows": "batches", **options})
    schema = to_arrow_schema(BATCHES, timezone="UTC")
    reader = PartitionReader(wanted, BatchFilter(wanted.topics), schema)
    with closing(QueryNodes(wanted)) as nodes:
        [journal] = nodes.poll().values()
        parts = nodes.partitions(journal, journal.span.start, journal.span.end)
    return {topic for part in parts for table in reader.read(part) for topic in table["topic"].to_pylist()}


def test_dead_letters_of_a_node_are_read_with_the_wanted_topics(
    make_node: Callable[..., RunningNode],
) -> None:
    node = make_node(dispatch__dead_letter_topic="my/dead")
    for topic in ("plant/a", "other/b", "my/dead"):
        node.keep(batches(topic, 1, 3, topic=topic))
    assert read_topics(node, topics="plant/**") == {"plant/a"}
    assert read_topics(node, topics="plant/**", deadLetters="true") == {"plant/a", "my/dead"}
    assert read_topics(node, deadLetters="true") == {"plant/a", "other/b", "my/dead"}


def test_nodes_name_their_dead_letter_topics(make_node: Callable[..., RunningNode]) -> None:
    nodes = [make_node("one"), make_node("two", dispatch__dead_letter_topic="my/dead")]
    with closing(PipelineSettings(tuple(node.url for node in nodes)).pipeline_nodes()) as asked:
        asked.ask()
        assert asked.dead_letter_topics == {"reknit/dead-letters", "my/dead"}
        assert asked.away == {}


def test_node_that_was_away_is_asked_when_it_is_back(node: RunningNode) -> None:
    node.stop()
    with closing(PipelineSettings((node.url,)).pipeline_nodes()) as asked:
        with pytest.raises(NodesAway, match=node.url):
            asked.require()
        asked.ask()
        assert list(asked.away) == [node.url]
        node.start()
        asked.require(wait_s=60.0)
        assert asked.away == {}

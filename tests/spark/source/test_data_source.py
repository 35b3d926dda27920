"""The source in a real Spark session, against real nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, Record, SubscriberClosed, SubscriberOpened
from tests.spark.running_node import RunningNode, batch, batches, source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def load(spark: SparkSession, node: RunningNode, **options: object) -> DataFrame:
    reader = spark.read.format("reknit").option("nodes", node.url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def test_a_node_is_a_table(spark: SparkSession, node: RunningNode) -> None:
    headers = [{"unit": "C"}, {}]
    node.keep(
        [
            batch("s", 1, ["21.5", "21.6"], columns={"headers": headers, "ttl": [5, 9]}),
            *batches("t", 1, 101, topic="plant/x"),
        ]
    )
    first, second = load(spark, node, topics="plant/temp").orderBy("seq").collect()
    assert bytes(first.payload) == b"21.5"
    assert (first.node, first.topic, bytes(first.source), first.seq) == (
        "line1",
        "plant/temp",
        source("s"),
        1,
    )
    assert (first.headers, second.headers) == ({"unit": "C"}, None)
    assert (first.ttl_ms, second.ttl_ms, first.time.year) == (5, 9, 2023)


def test_filters_are_pushed_and_the_rows_are_right(spark: SparkSession, node: RunningNode) -> None:
    node.keep(batches("s", 1, 101) + batches("t", 1, 101, topic="plant/x"))
    events = load(spark, node)
    some = events.where((f.col("topic") == "plant/x") & f.col("seq").between(15, 17))
    assert sorted(row.seq for row in some.select("seq").collect()) == [15, 16, 17]
    mine = (
        events.where(f.col("source") == f.lit(source("s")))
        .where("time > '2023-01-01'")
        .where("seq in (3, 99)")
    )
    assert sorted(row.seq for row in mine.select("seq").collect()) == [3, 99]
    assert events.where("time < '2001-01-01'").count() == 0


def test_a_session_that_pushes_no_filters_can_read(spark: SparkSession, node: RunningNode) -> None:
    node.keep(batches("s", 1, 21))
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        assert load(spark, node).where("seq > 15").count() == 5
    finally:
        spark.conf.set(setting, "true")


def test_batches_without_their_data_read_no_payloads(spark: SparkSession, node: RunningNode) -> None:
    node.keep(batches("s", 1, 101))
    reader = spark.read.format("reknit").option("nodes", node.url).option("rows", "batches")
    row = (
        reader.schema("first bigint, stop bigint, count int")
        .load()
        .selectExpr("min(first)", "max(stop)", "sum(count)")
    )
    assert tuple(row.collect()[0]) == (1, 101, 100)


def test_outcomes_are_rows(spark: SparkSession, node: RunningNode) -> None:
    node.keep(batches("s", 1, 11))
    records: list[Record] = [
        SubscriberOpened.at("audit", "plant/**", {("plant/temp", source("s")): 3}, 0, 1_000_000),
        Outcomes(
            "audit",
            [
                OutcomeRow("plant/temp", source("s"), 3, 9, FinalOutcome.ACCEPTED, time_us=2_000_000),
                OutcomeRow(
                    "plant/temp",
                    source("s"),
                    9,
                    11,
                    FinalOutcome.DEAD_LETTERED,
                    9,
                    "rejected",
                    "no",
                    3,
                    3_000_000,
                ),
            ],
            77,
        ),
        SubscriberClosed("audit", 4_000_000),
    ]
    assert node.node is not None
    for record in records:
        node.node.journal.stage_record(record)
    node.node.journal.commit()
    columns = [
        "row",
        "kind",
        "topic",
        "start",
        "stop",
        "end",
        "reason",
        "attempts",
        "pattern",
        "since",
        "floor",
    ]
    expected = [
        (0, "opened", None, None, None, None, None, None, "plant/**", None, 0),
        (1, "opened", "plant/temp", None, None, None, None, None, "plant/**", 3, 0),
        (0, "outcomes", "plant/temp", 3, 9, "ACCEPTED", "", 1, None, None, 77),
        (1, "outcomes", "plant/temp", 9, 11, "DEAD_LETTERED", "rejected", 3, None, None, 77),
        (0, "closed", None, None, None, None, None, None, None, None, None),
    ]
    for journal in ("file", "tcp"):
        rows = load(spark, node, rows="outcomes", journal=journal).orderBy("position", "row").select(columns)
        assert [tuple(row) for row in rows.collect()] == expected


def stream(
    spark: SparkSession, folder: Path, nodes: list[RunningNode], name: str, **options: object
) -> list[Any]:
    """Read everything new into a table of files; resumes where the last call ended."""
    reader = spark.readStream.format("reknit").option("nodes", ",".join(node.url for node in nodes))
    events = reader.options(**{key: str(value) for key, value in options.items()}).load()
    writer = events.writeStream.format("parquet").option("path", str(folder / name))
    query = (
        writer.option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query.recentProgress


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, make_node: Callable[..., RunningNode], tmp_path: Path
) -> None:
    one, two = make_node("one"), make_node("two")
    one.keep(batches("s", 1, 501))
    two.keep(batches("t", 1, 101))
    progress = stream(spark, tmp_path, [one, two], "events", maxEventsPerTrigger=200)
    assert [step["numInputRows"] for step in progress] == [200, 200, 200]
    one.keep(batches("s", 501, 601))
    two.stop()
    stream(spark, tmp_path, [one, two], "events", maxEventsPerTrigger=200)
    two.start()
    two.keep(batches("t", 101, 151))
    stream(spark, tmp_path, [one, two], "events", maxEventsPerTrigger=200)
    rows = (
        spark.read.parquet(str(tmp_path / "events"))
        .groupBy("node")
        .agg(f.count("*"), f.countDistinct("source", "seq"), f.min("seq"), f.max("seq"))
    )
    assert sorted(tuple(row) for row in rows.collect()) == [
        ("one", 600, 600, 1, 600),
        ("two", 150, 150, 1, 150),
    ]


def test_a_column_that_is_not_there_is_named(spark: SparkSession, node: RunningNode) -> None:
    reader = spark.read.format("reknit").option("nodes", node.url)
    with pytest.raises(PySparkException, match="'body' is not a column of events"):
        reader.schema("body binary").load().collect()


def test_an_option_that_is_not_known_is_named(spark: SparkSession, node: RunningNode) -> None:
    with pytest.raises(PySparkException, match="did you mean topics"):
        load(spark, node, topic="plant/**").collect()


def test_a_batch_read_fails_when_a_node_is_away(
    spark: SparkSession, make_node: Callable[..., RunningNode]
) -> None:
    one, two = make_node("one"), make_node("two")
    one.keep(batches("s", 1, 11))
    two.stop()
    reader = spark.read.format("reknit").option("nodes", f"{one.url},{two.url}")
    with pytest.raises(PySparkException, match="failOnNodeAway=false"):
        reader.load().count()
    assert reader.option("failOnNodeAway", "false").load().count() == 10

"""The sink: each row that Spark writes is published once, however often Spark repeats the write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from reknit.batch import Batch
from reknit.errors import NotConnected
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.options import InvalidOption
from reknit.spark.runtime.session import use_in_thread
from reknit.spark.sink.options import SinkOptions
from reknit.spark.sink.publisher import source_of
from reknit.spark.sink.writers import check_columns, write_rows
from tests.spark.running_node import RunningNode, batches

PLACE = "plant/alerts"


def options(node: RunningNode, **more: str) -> SinkOptions:
    return SinkOptions.read({"nodes": node.url, "topic": PLACE, **more})


def rows(*payloads: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": [one.encode() for one in payloads], **columns})


def held(node: RunningNode) -> list[tuple[str, int, bytes]]:
    """(topic, seq, payload) of all events, in the journal's order."""
    found: list[tuple[str, int, bytes]] = []
    with BlockingConnection(node.url) as link:
        for _, data in link.read(0, link.span().end):
            at = 0
            while at < len(data):
                batch = Batch.parse(data, at)
                found += [(event.topic, event.seq, event.payload) for event in batch.events()]
                at += batch.head.length
    return found


def write(node: RunningNode, number: int, *tables: pa.RecordBatch, **more: str) -> tuple[int, int]:
    """Write partition 0 of micro-batch `number`; returns the rows, and those that the node already had."""
    written = write_rows(options(node, **more), "sink", number, 0, iter(tables))
    return written.rows, written.dropped


def test_seqs_go_on_from_micro_batch_to_micro_batch(node: RunningNode) -> None:
    write(node, 0, rows("a", "b"), rows("c"))
    write(node, 1, rows("d"))
    assert held(node) == [(PLACE, 1, b"a"), (PLACE, 2, b"b"), (PLACE, 3, b"c"), (PLACE, 4, b"d")]


def test_a_micro_batch_that_runs_again_delivers_nothing_twice(node: RunningNode) -> None:
    write(node, 0, rows("a"))
    write(node, 1, rows("b", "c"))
    assert write(node, 1, rows("b", "c")) == (2, 2)
    assert write(node, 1, rows("b", "c")) == (2, 2)
    write(node, 2, rows("d"))
    assert [payload for _, _, payload in held(node)] == [b"a", b"b", b"c", b"d"]


def test_a_micro_batch_that_was_cut_off_goes_on(node: RunningNode) -> None:
    write(node, 0, rows("a"))

    def cut_off() -> Any:
        yield rows("b", "c")
        raise RuntimeError("the task was killed")

    with pytest.raises(RuntimeError):
        write_rows(options(node), "sink", 1, 0, cut_off())
    taken, _ = write(node, 1, rows("b", "c", "d"))
    assert taken == 3
    assert [payload for _, _, payload in held(node)] == [b"a", b"b", b"c", b"d"]


def test_an_older_micro_batch_is_passed_over(node: RunningNode) -> None:
    write(node, 4, rows("a"))
    write(node, 5, rows("b"))
    assert write(node, 4, rows("a")) == (1, 1)
    assert len(held(node)) == 2


def test_sink_id_of_a_query_with_another_checkpoint_is_refused(node: RunningNode) -> None:
    """Both count their micro-batches from 0, so the second query's would be taken for those that are there."""
    named = options(node, sinkId="alerts")
    for number in range(3):
        write_rows(named, "alerts", number, 0, iter([rows(f"a{number}")]), "query 1")
    for number in (0, 2, 3):
        with pytest.raises(InvalidOption, match="'alerts' was used by a query with another checkpoint"):
            write_rows(named, "alerts", number, 0, iter([rows("b")]), "query 2")
    repeated = write_rows(named, "alerts", 1, 0, iter([rows("a1")]), "query 1")
    assert (repeated.rows, repeated.dropped) == (1, 1)
    assert [payload for _, _, payload in held(node)] == [b"a0", b"a1", b"a2"]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_another_thread_writes_with_the_session(spark: SparkSession, node: RunningNode) -> None:
    def write_there() -> None:
        use_in_thread(spark)
        made = spark.range(0, 4, 1, 1).select(F.col("id").cast("string").alias("payload"))
        made.write.format("reknit").option("nodes", node.url).option("topic", PLACE).mode("append").save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write_there).result()
    assert sorted(payload for _, _, payload in held(node)) == [b"0", b"1", b"2", b"3"]


def test_it_holds_when_the_node_starts_again_in_between(node: RunningNode) -> None:
    write(node, 0, rows("a", "b"))
    node.stop()
    node.start()
    assert write(node, 0, rows("a", "b")) == (2, 2)
    write(node, 1, rows("c"))
    assert [seq for _, seq, _ in held(node)] == [1, 2, 3]


def test_a_node_that_goes_while_it_is_written_to_is_waited_for(node: RunningNode) -> None:
    def tables() -> Any:
        yield rows("a")
        node.stop()
        node.start()
        yield rows("b")

    write_rows(options(node), "sink", 0, 0, tables())
    assert [payload for _, _, payload in held(node)] == [b"a", b"b"]


def test_a_node_that_stays_away_is_an_error(node: RunningNode) -> None:
    node.stop()
    with pytest.raises(NotConnected):
        write(node, 0, rows("a"), timeoutS="0.1")


def test_every_topic_has_its_own_source(node: RunningNode) -> None:
    table = rows("a", "b", "c", "d", topic=["x", "y", "x", None])
    write(node, 0, table)
    write(node, 0, table)
    assert held(node) == [("x", 1, b"a"), ("x", 2, b"c"), ("y", 1, b"b"), (PLACE, 1, b"d")]
    assert source_of("sink", "x", 0, "e") != source_of("sink", "y", 0, "e") != source_of("sink", "y", 1, "e")


def test_what_differs_between_events_goes_along(node: RunningNode) -> None:
    columns = {"headers": [[("a", "b")], None], "ttl_ms": [7, None], "key": ["k", None]}
    kinds = pa.schema(
        {
            "payload": pa.binary(),
            "headers": pa.map_(pa.string(), pa.string()),
            "ttl_ms": pa.int32(),
            "key": pa.string(),
        }
    )
    write(node, 0, pa.RecordBatch.from_pydict({"payload": [b"x", b"y"], **columns}, schema=kinds), ttlMs="9")
    with BlockingConnection(node.url) as link:
        [(_, data)] = link.read(0, link.span().end)
    one, two = Batch.parse(data).events()
    assert (one.headers, one.ttl_ms, two.headers, two.ttl_ms) == ({"a": "b"}, 7, {}, 9)


def test_long_rows_are_cut_into_batches(node: RunningNode) -> None:
    payloads = [f"{number:04}" * 100 for number in range(100)]
    write(node, 0, rows(*payloads), batchBytes="1000")
    assert [payload.decode() for _, _, payload in held(node)] == payloads


def test_columns_that_can_not_be_written_are_named(node: RunningNode) -> None:
    text = StructType([StructField("payload", StringType()), StructField("colour", StringType())])
    with pytest.raises(InvalidOption, match="'colour' can't be written"):
        check_columns(options(node), text)
    with pytest.raises(InvalidOption, match="payload is missing"):
        check_columns(options(node), StructType([StructField("topic", StringType())]))
    with pytest.raises(InvalidOption, match="topic"):
        check_columns(SinkOptions.read({"nodes": "tcp://a"}), StructType([text["payload"]]))


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_that_is_run_again_delivers_nothing_twice(
    spark: SparkSession, make_node: Any, tmp_path: Path
) -> None:
    inlet, outlet = make_node("inlet"), make_node("outlet")
    inlet.keep(batches("s", 1, 301) + batches("t", 1, 301))
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("reknit").option("nodes", inlet.url).option("partitionBytes", 2000)
        events = reader.option("maxEventsPerTrigger", 200).load()
        out = events.selectExpr("'plant/copy' AS topic", "payload", "map('from', node) AS headers", "time")
        writer = out.writeStream.format("reknit").option("nodes", outlet.url)
        writer = writer.option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    expected = sorted([f"{name}-{seq}".encode() for name in "st" for seq in range(1, 301)])
    assert sorted(payload for _, _, payload in held(outlet)) == expected
    last = max(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)  # as after a kill between the write and the commit
    run()
    assert sorted(payload for _, _, payload in held(outlet)) == expected


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_frame_is_written_once_under_its_name(spark: SparkSession, node: RunningNode) -> None:
    frame: DataFrame = spark.range(5).selectExpr("cast(id AS string) AS payload")
    writer = (
        frame.coalesce(1)
        .write.format("reknit")
        .option("nodes", node.url)
        .option("topic", PLACE)
        .mode("append")
    )
    with pytest.raises(PySparkException, match="batchId go together"):
        writer.option("sinkId", "redrive").save()
    for number in (0, 0, 1):
        writer.option("sinkId", "redrive").option("batchId", number).save()
    assert [seq for _, seq, _ in held(node)] == list(range(1, 11))

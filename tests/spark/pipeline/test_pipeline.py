"""The whole pipeline on real nodes: it agrees with the node's ledger, redrives once, and names lost events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reknit.batch import Head, parse_head
from reknit.client.session import connect
from reknit.config import Config, MulticastSettings
from reknit.errors import LocalError
from reknit.event import Event
from reknit.frame import KIND_BATCH, PREFIX_BYTES, peek
from reknit.spark.data_source import ReknitDataSource
from reknit.spark.lake.lake import REDRIVEN, Lake
from reknit.spark.lake.maintenance import compact
from reknit.spark.lake.spark_tables import read
from reknit.spark.pipeline.pipeline import (
    LATE_WORKER,
    SLOW_STARTS_MAX,
    Pipeline,
    PipelineFailed,
    PipelineSettings,
)
from reknit.spark.sink.options import SinkOptions
from reknit.spark.stages.audit.lake import audit_lake
from reknit.spark.stages.dead_letters import dead_letters_by
from reknit.spark.stages.redrive import redrive
from reknit.store.directory.repair import repair
from tests.multicast_addresses import multicast_address
from tests.spark.lakes import KilledBeforeItsEnd, killed_at, ranges
from tests.spark.running_node import RunningNode, batches

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.timeout(400)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def run_once(spark: SparkSession, lake: Lake, *urls: str, **settings: Any) -> Any:
    spark.dataSource.register(ReknitDataSource)
    return Pipeline(spark, lake, PipelineSettings(urls, is_once=True, **settings)).run()


async def take(url: str, name: str, pattern: str, count: int, is_bad: Callable[[Event], bool]) -> None:
    """A durable subscriber that settles `count` events, and rejects bad ones."""
    async with (
        connect(url) as session,
        session.subscribe(pattern, name=name, history=True, auto_accept=False) as events,
    ):
        async for event in events:
            await (event.reject(3, "bad value") if is_bad(event) else event.accept())
            count -= 1
            if not count:
                break


async def ask_ledger(url: str) -> list[dict[str, Any]]:
    async with connect(url) as session:
        return await session.ledger()


def test_what_a_group_carries_is_captured_and_settled(
    spark: SparkSession, lake: Lake, node: RunningNode
) -> None:
    config = Config(group=MulticastSettings(address=multicast_address(), discover_s=0.1, beat_s=0.1))

    async def send() -> bytes:
        async with (
            asyncio.timeout(150),
            connect(node.url, config=config) as session,
            session.group("robots") as group,
        ):
            await group.send_many([b"%d" % number for number in range(50)])
            return group.id

    source = asyncio.run(send())
    figures = run_once(spark, lake, node.url)
    assert (figures.settled, figures.lost) == (50, 0)
    rows = read(spark, lake, "events").collect()
    assert sorted((row["topic"], bytes(row["source"]), row["seq"]) for row in rows) == [
        ("group/robots", source, seq) for seq in range(1, 51)
    ]


def test_tables_agree_with_the_node_and_dead_letters_are_redriven_once(
    spark: SparkSession, lake: Lake, node: RunningNode
) -> None:
    node.keep([*batches("a", 1, 301, 50), *batches("b", 1, 101, topic="plant/hum")])
    asyncio.run(take(node.url, "dash", "plant/**", 400, lambda event: False))
    asyncio.run(take(node.url, "store", "plant/temp", 200, lambda event: event.seq % 50 == 0))
    figures = run_once(spark, lake, node.url)
    assert (figures.settled, figures.dead_letters, figures.lost) == (404, 4, 0)

    audit = audit_lake(spark, lake, is_full=False)
    assert audit.balanced
    names = ("subscriber", "topic", "published", "accepted", "dead_lettered", "lost", "in_flight")
    live = [tuple(row[name] for name in names) for row in asyncio.run(ask_ledger(node.url))]
    assert sorted(tuple(getattr(row, name) for name in names) for row in audit.rows) == sorted(live)
    assert ("store", "plant/temp", 300, 196, 4, 0, 100) in live

    [by_reason] = dead_letters_by(read(spark, lake, "dead_letters"), ["reason", "topic"]).collect()
    assert (by_reason["reason"], by_reason["topic"], by_reason["letters"]) == ("rejected", "plant/temp", 4)

    where, to = "reason = 'REJECTED' and subscriber = 'store'", SinkOptions((node.url,))
    dry = redrive(spark, lake, to, where, is_dry=True)
    assert (dry.chosen, dry.published, dry.topics) == (4, 0, {"plant/temp": 4})
    with pytest.raises(KilledBeforeItsEnd), killed_at(lake, REDRIVEN):
        redrive(spark, lake, to, where, rate=1000.0)
    for _ in range(2):  # the first of these resumes, and finds that everything was published
        again = redrive(spark, lake, to, where)
        assert (again.chosen, again.already, again.published, again.resumed) == (0, 4, 0, 0)

    second = run_once(spark, lake, node.url)
    assert second.settled == 4
    compact(lake, keep_s=0)
    rows = read(spark, lake, "events").where("topic = 'plant/temp'").collect()
    assert len(rows) == 304
    redriven = [row for row in rows if row["headers"] and "redriven" in row["headers"]]
    assert sorted(bytes(row["payload"]) for row in redriven) == [b"a-100", b"a-150", b"a-200", b"a-50"]
    assert run_once(spark, lake, node.url).settled == 0


def test_condition_that_cannot_be_read_is_the_callers_mistake(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(LocalError, match="columns are topic, source"):
        redrive(spark, lake, SinkOptions(("tcp://127.0.0.1:1",)), "reasn = 'x'", is_dry=True)


def test_failure_of_a_stage_is_told_in_a_line(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(PipelineFailed, match="stage capture") as failed:
        run_once(spark, lake, "tcp://127.0.0.1:1", topics="a//b", allow_missing=True)
    assert "\n" not in str(failed.value)


def test_worker_that_is_late_is_waited_for_again(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(
        spark, lake, PipelineSettings(("tcp://127.0.0.1:9",), is_once=True, allow_missing=True)
    )
    late = [PipelineFailed("capture batches", f"{LATE_WORKER}.")] * SLOW_STARTS_MAX

    def run() -> None:
        if late:
            raise late.pop()

    monkeypatch.setattr(pipeline, "_run", run)
    assert pipeline.run().stage == "done"
    late += [PipelineFailed("capture batches", f"{LATE_WORKER}.")] * (SLOW_STARTS_MAX + 1)
    with pytest.raises(PipelineFailed, match=LATE_WORKER):
        pipeline.run()
    assert not late


def test_events_taken_out_of_a_journal_behind_its_back_are_named_by_range(
    spark: SparkSession, lake: Lake, make_node: Callable[..., RunningNode]
) -> None:
    node = make_node(journal__segment_bytes=4096)
    for first in range(1, 2001, 200):
        node.keep(batches("a", first, first + 200))
    asyncio.run(take(node.url, "dash", "plant/**", 2000, lambda event: False))
    node.stop()
    segments = sorted((node.directory / "log").glob("*.log"))
    assert len(segments) > 4
    with open(segments[2], "rb") as file:
        heads = list(parse_heads(file.read()))
    segments[2].unlink()
    repair(node.directory)
    node.start()
    figures = run_once(spark, lake, node.url, fail_on_data_loss=False)
    start, stop = heads[0].first, heads[-1].stop
    assert (figures.lost, figures.settled) == (stop - start, 2000 - (stop - start))
    assert ranges(spark, lake, "losses") == [(start, stop)]
    audit = audit_lake(spark, lake, is_full=False)
    assert [(p.start, p.stop, p.problem) for p in audit.problems] == [
        (start, stop, "ended, and is missing from every journal")
    ]
    assert not audit.balanced


def parse_heads(data: bytes) -> Iterator[Head]:
    """The batches in a segment of a journal."""
    at = 0
    while at + PREFIX_BYTES <= len(data):
        kind, length = peek(data, at, len(data) - at)
        if kind == KIND_BATCH:
            yield parse_head(data, at)
        at += length

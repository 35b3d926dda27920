"""Redrive: publishes dead letters again, selected by a condition, at a rate, each once.

The selection is committed before the first event is published. The next redrive first finishes one that was
interrupted: the node knows how far each run got, so nothing is published twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.errors import LocalError
from reknit.private_topics import PRIVATE
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.lake.commits import Commit
from reknit.spark.lake.lake import REDRIVEN, Lake
from reknit.spark.lake.spark_tables import Transaction, clear_unfinished, read
from reknit.spark.sink.options import SinkOptions
from reknit.spark.sink.publisher import SinkPublisher, source_of
from reknit.spark.stages.redriven_events import RedrivenEvent, grouped, put

__all__ = [
    "RedriveReport",
    "on_public_topics",
    "parse_rate",
    "redrive",
    "select_letters",
    "select_unredriven",
]

STEP_S: Final = 0.05
"""The rate is controlled in steps of this length."""
_RATE: Final = re.compile(r"(\d+)\s*/\s*(s|min|h)")
_IS_WHOLE: Final = "coalesce(has_payload, false) and fields is not null"
_LETTER: Final = ["letter_source", "letter_seq"]
_ORDER: Final = ["topic", "letter_source", "letter_seq"]


class RedriveReport(msgspec.Struct, frozen=True):
    """How many dead letters were selected, and how many published."""

    chosen: int = 0
    already: int = 0
    """Selected dead letters that were redriven before."""
    published: int = 0
    resumed: int = 0
    """Of those, events of an earlier run that was interrupted."""
    topics: dict[str, int] = {}
    is_dry: bool = False
    refused: int = 0
    """Selected dead letters that can't be redriven as a whole: they lack the event's payload or its other fields."""


def parse_rate(text: str) -> float:
    """Events per second, from text; 0 means no limit.

    >>> parse_rate("1000/s"), parse_rate("30/min"), parse_rate("0")
    (1000.0, 0.5, 0.0)
    """
    if text.strip() in ("", "0"):
        return 0.0
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise LocalError(f"{text!r} is not a valid rate; write it as 1000/s, 30/min or 500/h")
    return int(found[1]) / {"s": 1, "min": 60, "h": 3600}[found[2]]


def select_letters(spark: SparkSession, lake: Lake, where: str) -> DataFrame:
    """The dead letters that match a condition in SQL. Raises `LocalError` if Spark can't parse it.

    Upper and lower case of a reason do not matter, since many write it like a constant.
    """
    letters = read(spark, lake, "dead_letters").dropDuplicates(_LETTER)
    if not where.strip():
        return letters
    reason = F.col("reason")
    try:
        found = letters.withColumn("reason", F.collate(reason, "UTF8_LCASE")).where(where)
        return found.withColumn("reason", F.collate(reason, "UTF8_BINARY"))
    except PySparkException as error:
        what = str(error).splitlines()[0]
        names = ", ".join(letters.columns)
        raise LocalError(
            f"--where {where!r} is not valid SQL for this table ({what}); columns are {names}"
        ) from None


def select_unredriven(spark: SparkSession, lake: Lake, where: str) -> tuple[DataFrame, int]:
    """The matching dead letters that were not redriven yet, and the number of those that were."""
    letters = select_letters(spark, lake, where)
    before = read(spark, lake, "redrives").select(*_LETTER)
    already = letters.join(before, _LETTER, "semi").count() if lake.files("redrives") else 0
    return letters.join(before, _LETTER, "anti"), already


def redrive(
    spark: SparkSession,
    lake: Lake,
    to: SinkOptions,
    where: str = "",
    rate: float = 0.0,
    is_dry: bool = False,
    progress: Callable[[int, int], None] | None = None,
    ttl_ms: int | None = None,
) -> RedriveReport:
    """Publish the matching dead letters again on their own topics, each with everything that its event carried.

    `ttl_ms` replaces the events' own time to live. Letters without their event's payload are refused. Calls
    `progress(done, total)` on the way.
    """
    published, resumed = 0, 0
    with lake.locked("_redrive"):
        lake.redo(["redrive"])
        clear_unfinished(lake, ["redrive"])
        if not is_dry:
            resumed = sum(_publish(spark, lake, run, to, rate, ttl_ms, None) for run in _unfinished(lake))
        found, already = select_unredriven(spark, lake, where)
        fresh = on_public_topics(found.where(_IS_WHOLE))
        refused = found.where(f"not ({_IS_WHOLE})").count()
        counts = fresh.groupBy("topic").count().orderBy("topic").collect()
        topics = {row["topic"]: int(row["count"]) for row in counts}
        if topics and not is_dry:
            run = _plan(spark, lake, fresh, topics, _epoch(to))
            published = _publish(spark, lake, run, to, rate, ttl_ms, progress)
    chosen = sum(topics.values())
    return RedriveReport(chosen, already, published + resumed, resumed, topics, is_dry, refused)


def on_public_topics(letters: DataFrame) -> DataFrame:
    """An event that a node redrove to one subscriber died on a private topic: it goes back to everybody."""
    return letters.withColumn("topic", F.regexp_replace("topic", f"^{PRIVATE}[^/]+/", ""))


def _sink(lake: Lake) -> str:
    return f"redrive {lake.id}"


def _epoch(to: SinkOptions) -> str:
    with BlockingConnection(to.nodes[0], to.token, to.timeout_s, to.tls) as connection:
        return connection.welcome.epoch


def _plan(spark: SparkSession, lake: Lake, fresh: DataFrame, topics: dict[str, int], epoch: str) -> int:
    """Commit which dead letters will be published; returns the run's number."""
    last = lake.log("redrive").last()
    run = 0 if last is None else last.id + 1
    sources = F.create_map(*(F.lit(x) for t in topics for x in (t, source_of(_sink(lake), t, 0, epoch))))
    rows = fresh.withColumns(
        {
            "run": F.lit(run).cast("bigint"),
            "source": sources[F.col("topic")],
            "time": F.lit(datetime.now(UTC)),
        }
    )
    with Transaction(lake, "redrive", run) as transaction:
        transaction.write("redrives", rows)
        transaction.commit({"topics": topics})
    return run


def _unfinished(lake: Lake) -> list[int]:
    """The redrives that were planned and not published to the end."""
    done = lake.log(REDRIVEN)
    return [commit.id for commit in lake.log("redrive").commits() if not done.has(commit.id)]


def _publish(
    spark: SparkSession,
    lake: Lake,
    run: int,
    to: SinkOptions,
    rate: float,
    ttl_ms: int | None,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Publish one run, and mark it as done when the node has stored everything."""
    planned = read(spark, lake, "redrives", run - 1, run).select(*_LETTER)
    letters = read(spark, lake, "dead_letters").dropDuplicates(_LETTER).join(planned, _LETTER)
    letters = on_public_topics(letters)
    rows = letters.orderBy(*_ORDER)
    total = planned.count() if progress else 0
    publisher = SinkPublisher(to, _sink(lake), run, 0)
    step = max(1, int(rate * STEP_S)) if rate else 1000
    events = map(RedrivenEvent.of_row, rows.toLocalIterator(prefetchPartitions=True))
    try:
        for group in grouped(events, step):
            began = time.monotonic()
            put(publisher, group, ttl_ms)
            if progress:
                progress(publisher.count, total)
            if rate:
                time.sleep(max(0.0, len(group) / rate - (time.monotonic() - began)))
        publisher.close()
    except BaseException:
        publisher.abort()
        raise
    lake.log(REDRIVEN).add(Commit(REDRIVEN, run, time.time_ns() // 1000))
    return publisher.count - publisher.dropped

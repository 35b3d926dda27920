"""The events that nodes owe: the durable subscribers, the published ranges, and which of them each is owed."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from reknit.ledger import account_pattern
from reknit.spark.lake.columns import add, replace

__all__ = ["ACCOUNT", "KEYS", "SERIES", "accounts", "owed_ranges", "published_ranges", "subscribed_topics"]

ACCOUNT: Final = ["node", "subscriber"]
KEYS: Final = [*ACCOUNT, "topic", "source"]
SERIES: Final = ["node", "topic", "source"]


def accounts(outcomes: DataFrame, batches: DataFrame) -> DataFrame:
    """The durable subscribers that exist now: node, subscriber, pattern, opened_at, floor, is_whole.

    A subscriber that was removed and opened again starts anew. `is_whole` is false where the tables begin after the
    journal did: then a subscriber may have been opened before, and its pattern is null.
    """
    begins = batches.select("node", "position").unionByName(outcomes.select("node", "position"))
    whole = begins.groupBy("node").agg((F.min("position") == 0).alias("is_whole"))
    by = Window.partitionBy(*ACCOUNT)
    closed_at = F.max(F.when(F.col("kind") == "closed", F.col("position"))).over(by)
    rows = add(outcomes.where("subscriber is not null"), closed_at=closed_at)
    current = rows.where("closed_at is null or position > closed_at")
    opened_at = F.when(F.col("kind") == "opened", F.col("position"))
    pattern = F.when(F.col("kind") == "opened", F.col("pattern"))
    found = current.groupBy(*ACCOUNT).agg(
        F.min(opened_at).alias("opened_at"),
        F.min_by(pattern, opened_at).alias("pattern"),
        F.max("floor").alias("floor"),
        F.max("closed_at").alias("closed_at"),
    )
    known = found.join(F.broadcast(whole), "node")
    existing = known.where("opened_at is not null or (not is_whole and closed_at is null)")
    return replace(existing, opened_at=F.coalesce("opened_at", F.lit(-1)))


# -- what was published


def published_ranges(batches: DataFrame, outcomes: DataFrame, losses: DataFrame | None) -> DataFrame:
    """The ranges that each node has or knows to be missing, each event once; and the losses that no node knew of."""
    skipped = _skipped(outcomes)
    columns = [*SERIES, "first", "stop", "position", "time"]
    rows = batches.select(*columns).unionByName(skipped)
    order = Window.partitionBy(*SERIES).orderBy("first", F.desc("stop"), "position")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    ranked = add(rows, m=F.max("stop").over(before))
    start = F.greatest("first", F.coalesce("m", F.lit(0)))
    known = ranked.where("m is null or stop > m").select(
        *SERIES, start.alias("start"), "stop", "position", "time", F.lit(False).alias("is_loss")
    )
    if losses is None:
        return known
    return known.unionByName(_unreported_losses(rows, skipped, losses))


def _skipped(outcomes: DataFrame) -> DataFrame:
    """The ranges that a node knows to be missing, as rows of batches."""
    first = F.col("start").alias("first")
    return outcomes.where("kind = 'skipped'").select(*SERIES, first, "stop", _nowhere(), "time")


def _unreported_losses(rows: DataFrame, skipped: DataFrame, losses: DataFrame) -> DataFrame:
    """Losses within a node's part of a series, without those that the node itself reported."""
    spans = rows.groupBy(*SERIES).agg(F.min("first").alias("low"), F.max("stop").alias("high"))
    holes = losses.where("reason = 'missing'").select(
        "topic", "source", "start", "stop", F.col("noticed").alias("time")
    )
    lost = spans.join(F.broadcast(holes), ["topic", "source"]).where("low < start and stop < high").alias("l")
    reported = skipped.select(*SERIES, "first", "stop").alias("k")
    same = [F.col(f"l.{name}") == F.col(f"k.{name}") for name in SERIES]
    within = (F.col("k.first") <= F.col("l.start")) & (F.col("l.stop") <= F.col("k.stop"))
    unreported = lost.join(F.broadcast(reported), [*same, within], "anti")
    return unreported.select(*SERIES, "start", "stop", _nowhere(), "time", F.lit(True).alias("is_loss"))


def _nowhere() -> Column:
    """The position of events that are in no journal."""
    return F.lit(-1).cast("bigint").alias("position")


# -- to whom


def owed_ranges(
    published: DataFrame, outcomes: DataFrame, opened: DataFrame, subscribed: DataFrame
) -> DataFrame:
    """The published ranges that each subscriber is owed."""
    since = (
        outcomes.where("kind = 'opened' and topic is not null")
        .join(F.broadcast(opened.select(*ACCOUNT, "opened_at")), ACCOUNT)
        .where("position = opened_at")
        .groupBy(*KEYS)
        .agg(F.min(F.coalesce("since", "start")).alias("since"))
    )
    owed = published.join(subscribed, ["node", "topic"]).join(since, KEYS, "left")
    clipped = replace(owed, start=F.greatest("start", F.coalesce("since", F.lit(1))))
    return clipped.where("start < stop")


def subscribed_topics(batches: DataFrame, outcomes: DataFrame, opened: DataFrame, is_lazy: bool) -> DataFrame:
    """(node, subscriber, topic) for each topic that the subscriber's pattern matches."""
    find = _matched_by_workers if is_lazy else _matched_by_driver
    return F.broadcast(find(_topics(batches, outcomes), opened))


def _topics(batches: DataFrame, outcomes: DataFrame) -> DataFrame:
    """(node, topic), each once."""
    named = outcomes.where("topic is not null")
    return batches.select("node", "topic").unionByName(named.select("node", "topic")).distinct()


def _matched_by_driver(topics: DataFrame, opened: DataFrame) -> DataFrame:
    by_node: dict[str, set[str]] = {}
    for row in topics.collect():
        by_node.setdefault(row["node"], set()).add(row["topic"])
    rows: list[dict[str, str]] = []
    for row in opened.collect():
        matched = [
            topic
            for topic in by_node.get(row["node"], ())
            if _matches(row["subscriber"], row["pattern"], topic)
        ]
        rows += [
            {"node": row["node"], "subscriber": row["subscriber"], "topic": topic}
            for topic in sorted(matched)
        ]
    schema = pa.schema([(name, pa.string()) for name in (*ACCOUNT, "topic")])
    return topics.sparkSession.createDataFrame(pa.Table.from_pylist(rows, schema))


def _matched_by_workers(topics: DataFrame, opened: DataFrame) -> DataFrame:
    """As `_matched_by_driver`, without running anything yet."""
    every = topics.join(F.broadcast(opened.select(*ACCOUNT, "pattern")), "node")
    matches = F.udf(_matches, BooleanType(), useArrow=False)
    return every.where(matches("subscriber", "pattern", "topic")).select(*ACCOUNT, "topic")


def _matches(subscriber: str, pattern: str | None, topic: str) -> bool:
    return pattern is None or account_pattern(subscriber, pattern).matches(topic)

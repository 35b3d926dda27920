"""Aligns the events that are owed with their outcomes: one pass over the sorted bounds of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reknit.spark.lake.columns import replace, without
from reknit.spark.stages.audit.ends import OUTCOME, ended_ranges
from reknit.spark.stages.audit.owed import (
    ACCOUNT,
    KEYS,
    SERIES,
    accounts,
    owed_ranges,
    published_ranges,
    subscribed_topics,
)

__all__ = ["segments"]

NO_POSITION: Final = 1 << 62
"""Beyond every position and seq."""
_PIECE_TYPE: Final = "struct<stop:bigint,time:timestamp,position:bigint,is_loss:boolean>"
_OUTCOME_TYPE: Final = "struct<stop:bigint,end:string,code:int,reason:string,attempts:int,time:timestamp>"


def segments(
    batches: DataFrame,
    outcomes: DataFrame,
    losses: DataFrame | None = None,
    cut: Mapping[str, int] | None = None,
    is_lazy: bool = False,
) -> DataFrame:
    """For every durable subscriber and series: disjoint ranges with what was published and how it ended.

    `cut` gives, per node, the position up to which both tables are complete; later rows are left to the next audit.
    Columns: node, subscriber, topic, source, start, stop, piece (null: never published), outcome (null: in flight),
    floor (the node says that it owes nothing from before this position). With `is_lazy` no query runs before the
    result is used, as a declarative pipeline requires; the audit as a whole takes longer then.
    """
    batches, outcomes = _before(batches.where("count > 0"), cut), _before(outcomes, cut)
    opened = accounts(outcomes, batches)
    opened = opened if is_lazy else opened.persist()
    subscribed = subscribed_topics(batches, outcomes, opened, is_lazy)
    owed = owed_ranges(published_ranges(batches, outcomes, losses), outcomes, opened, subscribed)
    ends = ended_ranges(outcomes, opened, is_lazy).join(subscribed, [*ACCOUNT, "topic"], "semi")
    return _with_earlier(_aligned(owed, ends), batches, opened)


def _before(rows: DataFrame, cut: Mapping[str, int] | None) -> DataFrame:
    if not cut:
        return rows
    limits = F.create_map(*(F.lit(part) for pair in cut.items() for part in pair))
    return rows.where(F.col("position") < F.coalesce(limits[F.col("node")], F.lit(NO_POSITION)))


def _aligned(owed: DataFrame, ends: DataFrame) -> DataFrame:
    """Segments between neighbouring bounds of both sides, with the piece and the outcome that cover them."""
    piece = F.struct("stop", "time", "position", "is_loss")
    outcome = F.struct("stop", *OUTCOME)
    no_piece, no_outcome = F.lit(None).cast(_PIECE_TYPE), F.lit(None).cast(_OUTCOME_TYPE)
    bounds = (
        _bounds(owed, "start", piece, no_outcome)
        .unionByName(_bounds(owed, "stop", no_piece, no_outcome))
        .unionByName(_bounds(ends, "start", no_piece, outcome))
        .unionByName(_bounds(ends, "stop", no_piece, no_outcome))
    )
    order = Window.partitionBy(*KEYS).orderBy("seq")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # The last piece and outcome that began here or before; they cover the segment if they reach into it.
    lines = bounds.select(
        *KEYS,
        F.col("seq").alias("start"),
        F.lead("seq").over(order).alias("stop"),
        F.last("piece", ignorenulls=True).over(so_far).alias("piece"),
        F.last("outcome", ignorenulls=True).over(so_far).alias("outcome"),
    ).where("stop > start")
    return lines.select(*KEYS, "start", "stop", _covering("piece"), _covering("outcome")).where(
        "piece is not null or outcome is not null"
    )


def _bounds(rows: DataFrame, bound: str, piece: Column, outcome: Column) -> DataFrame:
    return rows.select(*KEYS, F.col(bound).alias("seq"), piece.alias("piece"), outcome.alias("outcome"))


def _covering(name: str) -> Column:
    return F.when(F.col(f"{name}.stop") > F.col("start"), F.col(name)).alias(name)


def _with_earlier(aligned: DataFrame, batches: DataFrame, opened: DataFrame) -> DataFrame:
    """Add each account's floor, and a piece where an outcome proves an event from before the tables begin."""
    floors = F.broadcast(opened.select(*ACCOUNT, "floor", "is_whole"))
    firsts = batches.groupBy(*SERIES).agg(F.min("first").alias("begin"))
    joined = aligned.join(floors, ACCOUNT).join(firsts, SERIES, "left")
    is_earlier = ~F.col("is_whole") & (F.col("start") < F.coalesce("begin", F.lit(NO_POSITION)))
    earlier = F.struct(
        F.col("stop"),
        F.col("outcome.time").alias("time"),
        F.lit(-1).cast("bigint").alias("position"),
        F.lit(False).alias("is_loss"),
    )
    proven = F.when(F.col("piece").isNull() & is_earlier & F.col("outcome").isNotNull(), earlier)
    return without(replace(joined, piece=F.coalesce("piece", proven)), "begin", "is_whole")

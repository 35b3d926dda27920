"""Settle: every event once and in order, gaps found and named. On ranges only; no payload is looked at.

Rows are batches, so rows are ranges `[start, stop)`. Sorted by start within a stream, with `m` as the highest stop
of all rows before, a row is news where `stop > m`, it is news from `max(start, m)` on, and there is a gap before it
where `start > m`. What is behind a gap is held until the gap is filled or given up (after the grace period), so that
each commit goes on, per source, where the one before ended.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reknit.spark.lake.columns import add, replace, without
from reknit.spark.lake.tables import TABLE_OF

__all__ = ["candidates", "covered", "decide", "settle"]

STREAM: Final = ["topic", "source"]
_REFERENCE: Final = ["first", "node", "position", "origin", "time", "columns_bytes", "noticed"]
_RANGES: Final = "array<struct<start:bigint,stop:bigint>>"


def settle(batches: DataFrame, grace_s: float = 0.0) -> DataFrame:
    """Decide a whole table of batches at once, with nothing known before and nothing to wait for.

    Column `what` is `settled` (each event once, in order), `lost` (a gap) or, with a grace period, `gap` and `held`
    (a gap that may still be filled, and what is behind it).
    """
    now = datetime.now().astimezone()
    return decide(candidates(batches, "batches", now), None, now, grace_s)


def candidates(batches: DataFrame, origin: str, now: datetime) -> DataFrame:
    """Rows of table `batches` or `recovered` as slim rows for `decide`."""
    own = {"origin": F.lit(origin), "noticed": F.lit(now)}
    reference = [own[name].alias(name) if name in own else F.col(name) for name in _REFERENCE]
    return batches.where("count > 0").select(*STREAM, F.col("first").alias("start"), "stop", *reference)


def decide(rows: DataFrame, coverage: DataFrame | None, now: datetime, grace_s: float) -> DataFrame:
    """What becomes of new and held ranges: a row per range with `what` it is.

    `settled`: next in order · `held`: behind a gap · `gap`: missing, still in grace · `lost`: missing, given up ·
    `late`: came after it was given up.
    """
    if coverage is None:
        known = add(rows, next=F.lit(None).cast("bigint"), lost=F.lit(None).cast(_RANGES))
    else:
        known = rows.join(coverage, STREAM, "left")
    fresh = _fresh(replace(known, next=F.coalesce("next", F.lit(0))), now, grace_s)
    return fresh if coverage is None else fresh.unionByName(_late(known))


def _fresh(rows: DataFrame, now: datetime, grace_s: float) -> DataFrame:
    """Everything from a stream's `next` on; 0 stands for a stream that is new."""
    base = F.greatest("next", F.lit(1))
    ahead = replace(rows.where(F.col("stop") > base), start=F.greatest("start", base))
    stream = Window.partitionBy(*STREAM)
    order = stream.orderBy("start", F.desc("stop"), "origin", "node", "position")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    # From here to the stream's end, said backwards: Spark takes quadratic time for the frame said forwards.
    backwards = stream.orderBy(F.desc("start"), "stop", F.desc("origin"), F.desc("node"), F.desc("position"))
    on = backwards.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = add(
        ahead,
        m=F.coalesce(F.max("stop").over(before), base),
        seen=F.min("noticed").over(on),
        is_first=(F.col("next") == 0) & (F.row_number().over(order) == 1),
    )
    is_gap = F.col("start") > F.col("m")
    is_open = is_gap & (F.col("seen") > F.lit(now - timedelta(seconds=grace_s)))
    opened = add(ranked, open_at=F.min(F.when(is_open, F.col("m"))).over(stream))
    is_held = F.coalesce(F.greatest("start", "m") > F.col("open_at"), F.lit(False))
    gap_is = F.when(is_open, "gap").otherwise("lost")
    piece = F.when(
        F.col("stop") > F.col("m"),
        _part(
            F.when(is_held, "held").otherwise("settled"), F.greatest("start", "m"), F.col("stop"), "noticed"
        ),
    )
    gap = F.when(is_gap, _part(gap_is, F.col("m"), F.col("start"), "seen"))
    reason = F.when(
        F.col("what").isin("gap", "lost"), F.when(F.col("is_first"), "beginning").otherwise("missing")
    )
    return add(_explode(opened, F.array(gap, piece)), reason=reason).select(*_decided())


def _late(rows: DataFrame) -> DataFrame:
    """Parts of ranges that had been given up and came after all; each once."""
    inside = F.filter("lost", lambda r: (r["start"] < F.col("stop")) & (r["stop"] > F.col("start")))
    parts = F.transform(
        inside,
        lambda r: _part(
            F.lit("late"), F.greatest(r["start"], "start"), F.least(r["stop"], "stop"), "noticed"
        ),
    )
    hit = rows.where(F.size("lost") > 0)
    cut = add(_explode(hit, parts), reason=F.lit(None).cast("string"))
    order = Window.partitionBy(*STREAM).orderBy("start", F.desc("stop"), "origin", "node", "position")
    m = F.max("stop").over(order.rowsBetween(Window.unboundedPreceding, -1))
    once = add(cut, m=m).where("m is null or stop > m")
    return replace(once, start=F.greatest("start", F.coalesce("m", F.lit(0)))).select(*_decided())


def _part(what: Column, start: Column, stop: Column, noticed: str) -> Column:
    return F.struct(
        what.alias("what"), start.alias("start"), stop.alias("stop"), F.col(noticed).alias("noticed")
    )


def _explode(rows: DataFrame, parts: Column) -> DataFrame:
    """A row per part, which replaces what the row said of itself."""
    kept = add(rows, part=F.explode(F.filter(parts, lambda part: part.isNotNull())))
    return without(without(kept, "start", "stop", "noticed").select("*", "part.*"), "part")


def _decided() -> list[str]:
    return ["what", *STREAM, "start", "stop", *_REFERENCE, "reason"]


def covered(coverage: DataFrame | None, decided: DataFrame) -> DataFrame:
    """The coverage after a decision: a row a stream."""
    ends = F.col("what").isin("settled", "lost")
    bounds = F.struct("start", "stop")
    news = decided.groupBy(*STREAM).agg(
        F.max(F.when(ends, F.col("stop"))).alias("new_next"),
        F.sort_array(F.collect_list(F.when(F.col("what") == "lost", bounds))).alias("new_lost"),
        F.sort_array(F.collect_list(F.when(F.col("what") == "late", bounds))).alias("came"),
    )
    empty = F.array().cast(_RANGES)
    if coverage is None:
        return news.where("new_next is not null").select(
            *STREAM, F.col("new_next").alias("next"), F.col("new_lost").alias("lost")
        )
    both = coverage.join(news, STREAM, "full")
    still = _without(F.coalesce("lost", empty), F.coalesce("came", empty))
    return both.select(
        *STREAM,
        F.coalesce("new_next", "next").alias("next"),
        F.concat(still, F.coalesce("new_lost", empty)).alias("lost"),
    ).where("next is not null")


def _without(ranges: Column, gone: Column) -> Column:
    """Disjoint ranges less other disjoint, sorted ones, each of which lies inside one of them."""

    def rest(one: Column) -> Column:
        inside = F.filter(gone, lambda g: (g["start"] < one["stop"]) & (g["stop"] > one["start"]))
        starts = F.concat(F.array(one["start"]), F.transform(inside, lambda g: g["stop"]))
        stops = F.concat(F.transform(inside, lambda g: g["start"]), F.array(one["stop"]))
        return F.zip_with(starts, stops, lambda a, b: F.struct(a.alias("start"), b.alias("stop")))

    return F.filter(F.flatten(F.transform(ranges, rest)), lambda r: r["start"] < r["stop"])


HELD_COLUMNS: Final = TABLE_OF["held"].names

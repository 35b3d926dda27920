"""Decides what becomes of each range: settled, held, gap, lost or late. No payload is read.

Rows are batches, so rows are ranges `[start, stop)`. Sorted by start within a series, with `m` the highest stop of all
rows before, a row has new events if `stop > m`; they begin at `max(start, m)`, and there is a gap before them if
`start > m`. Events after a gap are held until the gap is filled or given up (after the grace period), so that each
commit continues every source where the last one ended.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reknit.spark.lake.columns import add, replace, without

__all__ = ["SERIES", "candidates", "covered", "decide", "settle"]

SERIES: Final = ["topic", "source"]
_REFERENCE: Final = ["first", "node", "position", "origin", "time", "columns_bytes", "captured", "noticed"]
_DECIDED: Final = ["what", *SERIES, "start", "stop", *_REFERENCE, "reason"]
_RANGES: Final = "array<struct<start:bigint,stop:bigint>>"


def settle(batches: DataFrame, grace_s: float = 0.0) -> DataFrame:
    """Decide a whole table of batches at once, without earlier decisions.

    Column `what` is `settled` (each event once, in order), `lost` (a gap) or, with a grace period, `gap` and `held`
    (a gap that may still be filled, and the events after it).
    """
    now = datetime.now().astimezone()
    return decide(candidates(batches, "batches", now), None, now, grace_s)


def candidates(batches: DataFrame, origin: str, now: datetime, captured: Column | None = None) -> DataFrame:
    """Rows of table `batches` or `recovered`, without their frames, for `decide`.

    `captured` is the commit of capture that a row came with; a null if that does not matter.
    """
    commit = F.lit(None).cast("bigint") if captured is None else captured
    own = {"origin": F.lit(origin), "noticed": F.lit(now), "captured": commit}
    reference = [own[name].alias(name) if name in own else F.col(name) for name in _REFERENCE]
    return batches.where("count > 0").select(*SERIES, F.col("first").alias("start"), "stop", *reference)


def decide(
    rows: DataFrame,
    coverage: DataFrame | None,
    now: datetime,
    grace_s: float,
    asked: DataFrame | None = None,
) -> DataFrame:
    """Decide about new and held ranges: a row per range, with the decision in column `what`.

    `settled`: next in order · `held`: after a gap · `gap`: missing, still in grace · `lost`: missing, given up ·
    `late`: came after it was given up · `repeated`: held by an earlier row, too · `known`: before `next`, so repeated or
    late. With `asked` (topic, source, start, stop), a gap is given up only within one of
    these ranges.
    """
    if coverage is None:
        known = add(rows, next=F.lit(None).cast("bigint"), lost=F.lit(None).cast(_RANGES))
    else:
        known = rows.join(coverage, SERIES, "left")
    new = _new(replace(known, next=F.coalesce("next", F.lit(0))), now, grace_s, asked)
    return new if coverage is None else new.unionByName(_late(known)).unionByName(_known(known))


def _new(rows: DataFrame, now: datetime, grace_s: float, asked: DataFrame | None) -> DataFrame:
    """Decide about everything from a series' `next` on; `next` is 0 for a new series."""
    ranked = _ranked(rows)
    is_gap = F.col("start") > F.col("m")
    may_wait = F.col("seen") > F.lit(now - timedelta(seconds=grace_s))
    if asked is not None:
        ranked = ranked.join(F.broadcast(_by_series(asked)), SERIES, "left")
        may_wait |= ~F.coalesce(F.exists("asked", _spans_gap), F.lit(False))
    is_open = is_gap & may_wait
    opened = add(ranked, open_at=F.min(F.when(is_open, F.col("m"))).over(Window.partitionBy(*SERIES)))
    start = F.greatest("start", "m")
    is_held = F.coalesce(start > F.col("open_at"), F.lit(False))
    news = _range(F.when(is_held, "held").otherwise("settled"), start, F.col("stop"), "noticed")
    gap = _range(F.when(is_open, "gap").otherwise("lost"), F.col("m"), F.col("start"), "seen")
    repeated = _range(F.lit("repeated"), F.col("start"), F.least("stop", "m"), "noticed")
    ranges = F.array(
        F.when(is_gap, gap),
        F.when(F.col("stop") > F.col("m"), news),
        F.when(F.col("start") < F.col("m"), repeated),
    )
    why = F.when(F.col("is_first"), "beginning").otherwise("missing")
    reason = F.when(F.col("what").isin("gap", "lost"), why)
    return add(_explode(opened, ranges), reason=reason).select(*_DECIDED)


def _by_series(asked: DataFrame) -> DataFrame:
    """A row per series, with the ranges that were asked for."""
    ranges = F.collect_list(F.struct(F.col("start"), F.col("stop"))).alias("asked")
    return asked.groupBy(*SERIES).agg(ranges)


def _spans_gap(one: Column) -> Column:
    return (one["start"] <= F.col("m")) & (one["stop"] >= F.col("start"))


def _ranked(rows: DataFrame) -> DataFrame:
    """The rows that reach beyond `next`, each with `m`, when it or a later row was first seen, and `is_first`."""
    base = F.greatest("next", F.lit(1))
    ahead = replace(rows.where(F.col("stop") > base), start=F.greatest("start", base))
    series = Window.partitionBy(*SERIES)
    order = series.orderBy("start", F.desc("stop"), "origin", "node", "position")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    # From this row to the series' end, as a frame in reverse order: for the forward frame Spark takes quadratic time.
    backwards = series.orderBy(F.desc("start"), "stop", F.desc("origin"), F.desc("node"), F.desc("position"))
    to_end = backwards.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return add(
        ahead,
        m=F.coalesce(F.max("stop").over(before), base),
        seen=F.min("noticed").over(to_end),
        is_first=(F.col("next") == 0) & (F.row_number().over(order) == 1),
    )


def _late(rows: DataFrame) -> DataFrame:
    """Ranges that had been given up and came late; each event once."""
    inside = F.filter("lost", lambda r: (r["start"] < F.col("stop")) & (r["stop"] > F.col("start")))
    ranges = F.transform(
        inside,
        lambda r: _range(
            F.lit("late"), F.greatest(r["start"], "start"), F.least(r["stop"], "stop"), "noticed"
        ),
    )
    hit = rows.where(F.size("lost") > 0)
    cut = add(_explode(hit, ranges), reason=F.lit(None).cast("string"))
    order = Window.partitionBy(*SERIES).orderBy("start", F.desc("stop"), "origin", "node", "position")
    m = F.max("stop").over(order.rowsBetween(Window.unboundedPreceding, -1))
    once = add(cut, m=m).where("m is null or stop > m")
    return replace(once, start=F.greatest("start", F.coalesce("m", F.lit(0)))).select(*_DECIDED)


def _known(rows: DataFrame) -> DataFrame:
    """The parts of rows before `next`: of events that were decided before."""
    before = rows.where("start < next")
    known = _range(F.lit("known"), F.col("start"), F.least("stop", "next"), "noticed")
    return add(_explode(before, F.array(known)), reason=F.lit(None).cast("string")).select(*_DECIDED)


def _range(what: Column, start: Column, stop: Column, noticed: str) -> Column:
    return F.struct(
        what.alias("what"), start.alias("start"), stop.alias("stop"), F.col(noticed).alias("noticed")
    )


def _explode(rows: DataFrame, ranges: Column) -> DataFrame:
    """A row per range, whose columns replace the row's own."""
    exploded = add(rows, part=F.explode(F.filter(ranges, lambda part: part.isNotNull())))
    return without(without(exploded, "start", "stop", "noticed").select("*", "part.*"), "part")


def covered(coverage: DataFrame | None, decided: DataFrame) -> DataFrame:
    """The coverage after a decision: a row per series."""
    is_decided = F.col("what").isin("settled", "lost")
    bounds = F.struct("start", "stop")
    news = decided.groupBy(*SERIES).agg(
        F.max(F.when(is_decided, F.col("stop"))).alias("new_next"),
        F.sort_array(F.collect_list(F.when(F.col("what") == "lost", bounds))).alias("new_lost"),
        F.sort_array(F.collect_list(F.when(F.col("what") == "late", bounds))).alias("came"),
    )
    empty = F.array().cast(_RANGES)
    if coverage is None:
        return news.where("new_next is not null").select(
            *SERIES, F.col("new_next").alias("next"), F.col("new_lost").alias("lost")
        )
    both = coverage.join(news, SERIES, "full")
    still = _difference(F.coalesce("lost", empty), F.coalesce("came", empty))
    return both.select(
        *SERIES,
        F.coalesce("new_next", "next").alias("next"),
        F.concat(still, F.coalesce("new_lost", empty)).alias("lost"),
    ).where("next is not null")


def _difference(ranges: Column, removed: Column) -> Column:
    """Disjoint ranges without `removed`, which are disjoint and sorted, each inside one of the ranges."""

    def rest(one: Column) -> Column:
        inside = F.filter(removed, lambda g: (g["start"] < one["stop"]) & (g["stop"] > one["start"]))
        starts = F.concat(F.array(one["start"]), F.transform(inside, lambda g: g["stop"]))
        stops = F.concat(F.transform(inside, lambda g: g["start"]), F.array(one["stop"]))
        return F.zip_with(starts, stops, lambda a, b: F.struct(a.alias("start"), b.alias("stop")))

    return F.filter(F.flatten(F.transform(ranges, rest)), lambda r: r["start"] < r["stop"])

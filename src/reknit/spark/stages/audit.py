"""Audit: the ledger, from the tables. published = accepted + dead-lettered + lost + in flight.

Both sides are ranges, and one pass over their sorted bounds puts them side by side: between two neighbouring bounds
of a stream it is the same batch that was published and the same outcome that was recorded (or none). Those
`segments` are what everything else here is summed from: ledger, windows of time, latency, retries, problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType

from reknit.outcome import End
from reknit.seqset import SeqSet
from reknit.spark.lake.columns import add, replace, struct, without
from reknit.topic import Pattern

__all__ = ["accounts", "latency", "ledger", "problems", "segments", "windows"]

ACCOUNT: Final = ["node", "subscriber"]
KEYS: Final = [*ACCOUNT, "topic", "source"]
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
_END: Final = ["end", "code", "reason", "attempts", "time"]
_PIECE: Final = "struct<stop:bigint,time:timestamp,position:bigint,is_loss:boolean>"
_OUTCOME: Final = "struct<stop:bigint,end:string,code:int,reason:string,attempts:int,time:timestamp>"
_PARTS: Final = "start bigint, stop bigint, end string, code int, reason string, attempts int, time timestamp"


def segments(
    batches: DataFrame,
    outcomes: DataFrame,
    losses: DataFrame | None = None,
    cut: Mapping[str, int] | None = None,
    is_lazy: bool = False,
) -> DataFrame:
    """For every durable subscriber and stream: disjoint ranges with what was published and how it ended.

    `cut` gives, per node, the position up to which both tables are complete; the rest is left to the next audit.
    Columns: node, subscriber, topic, source, start, stop, piece (null: never published), outcome (null: in flight),
    floor (the position before which the node says that nothing is owed any more). With `is_lazy` nothing is
    run meanwhile, as a declarative pipeline demands it; that takes longer in the end.
    """
    batches, outcomes = _before(batches.where("count > 0"), cut), _before(outcomes, cut)
    opened = accounts(outcomes, batches)
    opened = opened if is_lazy else opened.persist()
    pieces = _pieces(batches, outcomes, losses)
    pairs = F.broadcast((_matched if is_lazy else _pairs)(batches, outcomes, opened))
    owed = _owed(pieces, outcomes, opened, pairs)
    ends = _ends(outcomes, opened, is_lazy).join(pairs, [*ACCOUNT, "topic"], "semi")
    merged = _merge(owed, ends)
    floors = opened.select(*ACCOUNT, "floor", "is_whole")
    firsts = batches.groupBy("node", "topic", "source").agg(F.min("first").alias("begin"))
    joined = merged.join(F.broadcast(floors), ACCOUNT).join(firsts, ["node", "topic", "source"], "left")
    # Where the tables begin later than the journal, an end before them proves that there was an event.
    is_earlier = ~F.col("is_whole") & (F.col("start") < F.coalesce("begin", F.lit(1 << 62)))
    earlier = F.struct(
        F.col("stop"),
        F.col("outcome.time").alias("time"),
        F.lit(-1).cast("bigint").alias("position"),
        F.lit(False).alias("is_loss"),
    )
    proven = F.when(F.col("piece").isNull() & is_earlier & F.col("outcome").isNotNull(), earlier)
    return without(replace(joined, piece=F.coalesce("piece", proven)), "begin", "is_whole")


def _before(rows: DataFrame, cut: Mapping[str, int] | None) -> DataFrame:
    if not cut:
        return rows
    limits = F.create_map(*(F.lit(part) for pair in cut.items() for part in pair))
    return rows.where(F.col("position") < F.coalesce(limits[F.col("node")], F.lit(1 << 62)))


def accounts(outcomes: DataFrame, batches: DataFrame) -> DataFrame:
    """The durable subscribers that are there now: node, subscriber, pattern, opened_at, floor, is_whole.

    A subscriber that was removed and came again starts anew. `is_whole` is false where the tables begin after the
    journal did: then a subscriber may have been opened before, and its pattern is null.
    """
    begins = batches.select("node", "position").unionByName(outcomes.select("node", "position"))
    whole = begins.groupBy("node").agg((F.min("position") == 0).alias("is_whole"))
    by = Window.partitionBy(*ACCOUNT)
    closed_at = F.max(F.when(F.col("kind") == "closed", F.col("position"))).over(by)
    rows = add(outcomes.where("subscriber is not null"), closed_at=closed_at)
    current = rows.where("closed_at is null or position > closed_at")
    is_opened = F.col("kind") == "opened"
    found = current.groupBy(*ACCOUNT).agg(
        F.min(F.when(is_opened, F.col("position"))).alias("opened_at"),
        F.min_by(F.when(is_opened, F.col("pattern")), F.when(is_opened, F.col("position"))).alias("pattern"),
        F.max("floor").alias("floor"),
        F.max("closed_at").alias("closed_at"),
    )
    known = found.join(F.broadcast(whole), "node")
    there = known.where("opened_at is not null or (not is_whole and closed_at is null)")
    return replace(there, opened_at=F.coalesce("opened_at", F.lit(-1)))


def _pieces(batches: DataFrame, outcomes: DataFrame, losses: DataFrame | None) -> DataFrame:
    """What every node has or knows to have missed, each event once; and the losses that nobody knew of."""
    columns = ("node", "topic", "source", "first", "stop", "position", "time")
    nowhere, first = F.lit(-1).cast("bigint").alias("position"), F.col("start").alias("first")
    skipped = outcomes.where("kind = 'skipped'")
    missed = skipped.select("node", "topic", "source", first, "stop", nowhere, "time")
    stream = Window.partitionBy("node", "topic", "source").orderBy("first", F.desc("stop"), "position")
    m = F.max("stop").over(stream.rowsBetween(Window.unboundedPreceding, -1))
    slim = add(batches.select(*columns).unionByName(missed), m=m)
    start = F.greatest("first", F.coalesce("m", F.lit(0)))
    pieces = slim.where("m is null or stop > m").select(
        "node",
        "topic",
        "source",
        start.alias("start"),
        "stop",
        "position",
        "time",
        F.lit(False).alias("is_loss"),
    )
    if losses is None:
        return pieces
    spans = slim.groupBy("node", "topic", "source").agg(
        F.min("first").alias("low"), F.max("stop").alias("high")
    )
    holes = losses.where("reason = 'missing'").select(
        "topic", "source", "start", "stop", F.col("noticed").alias("time")
    )
    lost = spans.join(F.broadcast(holes), ["topic", "source"]).where("low < start and stop < high").alias("l")
    known = missed.select(*columns[:5]).alias("k")
    same = [F.col(f"l.{name}") == F.col(f"k.{name}") for name in columns[:3]]
    within = (F.col("k.first") <= F.col("l.start")) & (F.col("l.stop") <= F.col("k.stop"))
    lost = lost.join(F.broadcast(known), [*same, within], "anti")
    return pieces.unionByName(
        lost.select(
            "node",
            "topic",
            "source",
            "start",
            "stop",
            F.lit(-1).cast("bigint").alias("position"),
            "time",
            F.lit(True).alias("is_loss"),
        )
    )


def _owed(pieces: DataFrame, outcomes: DataFrame, opened: DataFrame, pairs: DataFrame) -> DataFrame:
    """The pieces that each subscriber is owed."""
    since = (
        outcomes.where("kind = 'opened' and topic is not null")
        .join(F.broadcast(opened.select(*ACCOUNT, "opened_at")), ACCOUNT)
        .where("position = opened_at")
        .groupBy(*KEYS)
        .agg(F.min(F.coalesce("since", "start")).alias("since"))
    )
    owed = pieces.join(pairs, ["node", "topic"]).join(since, KEYS, "left")
    clipped = replace(owed, start=F.greatest("start", F.coalesce("since", F.lit(1))))
    return clipped.where("start < stop")


def _pairs(batches: DataFrame, outcomes: DataFrame, opened: DataFrame) -> DataFrame:
    """(node, subscriber, topic) wherever the subscriber's pattern matches; patterns are matched by our own rules."""
    topics: dict[str, set[str]] = {}
    for row in _topics(batches, outcomes).collect():
        topics.setdefault(row["node"], set()).add(row["topic"])
    rows: list[tuple[str, str, str]] = []
    for row in opened.collect():
        pattern = None if row["pattern"] is None else Pattern(row["pattern"])
        matched = [t for t in topics.get(row["node"], ()) if pattern is None or pattern.matches(t)]
        rows += [(row["node"], row["subscriber"], topic) for topic in sorted(matched)]
    names = pa.schema([(name, pa.string()) for name in (*ACCOUNT, "topic")])
    table = pa.Table.from_pylist([dict(zip(names.names, row, strict=True)) for row in rows], names)
    return batches.sparkSession.createDataFrame(table)


def _topics(batches: DataFrame, outcomes: DataFrame) -> DataFrame:
    """(node, topic), each once."""
    named = outcomes.where("topic is not null")
    return batches.select("node", "topic").unionByName(named.select("node", "topic")).distinct()


def _matched(batches: DataFrame, outcomes: DataFrame, opened: DataFrame) -> DataFrame:
    """As `_pairs`, by Spark's workers."""
    every = _topics(batches, outcomes).join(F.broadcast(opened.select(*ACCOUNT, "pattern")), "node")
    fits = F.udf(_fits, BooleanType(), useArrow=False)
    return every.where(fits("pattern", "topic")).select(*ACCOUNT, "topic")


def _fits(pattern: str | None, topic: str) -> bool:
    return pattern is None or Pattern(pattern).matches(topic)


def _ends(outcomes: DataFrame, opened: DataFrame, is_lazy: bool) -> DataFrame:
    """What ended, disjoint: an event ends once, so that the first word counts."""
    booked = outcomes.where("kind = 'outcomes' and topic is not null and start < stop")
    current = booked.join(F.broadcast(opened.select(*ACCOUNT, "opened_at")), ACCOUNT).where(
        "position > opened_at"
    )
    columns = [*KEYS, "start", "stop", *_END]
    by = Window.partitionBy(*KEYS)
    before = by.orderBy("start", "stop").rowsBetween(Window.unboundedPreceding, -1)
    m = F.coalesce(F.max("stop").over(before), F.lit(0))
    marked = add(current, overlaps=F.col("start") < m)
    marked = add(marked, is_mixed=F.max("overlaps").over(by))
    marked = marked if is_lazy else marked.persist()
    plain = marked.where("not is_mixed").select(*columns)
    mixed = marked.where("is_mixed").select(*columns, "position", "row")
    if not is_lazy and mixed.isEmpty():
        return plain
    rows = F.collect_list(F.struct("position", "row", "start", "stop", *_END)).alias("rows")
    kept = F.explode(F.udf(_first_wins, ArrayType(struct(_PARTS)), useArrow=False)("rows")).alias("kept")
    alone = mixed.groupBy(*KEYS).agg(rows).select(*KEYS, kept).select(*KEYS, "kept.*")
    return plain.unionByName(alone.select(*columns))


def _first_wins(rows: list[Any]) -> list[dict[str, Any]]:
    """The outcomes of one stream less what had ended before, in the journal's order: as `Ledger.settle` does."""
    ended = SeqSet()
    kept: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["position"], row["row"])):
        for start, stop in ended.missing(row["start"], row["stop"]):
            kept.append({**row.asDict(), "start": start, "stop": stop})
        ended.add(row["start"], row["stop"])
    return kept


def _merge(owed: DataFrame, ends: DataFrame) -> DataFrame:
    """Put both sides on one line: segments between neighbouring bounds, with what covers them."""
    piece = F.struct("stop", "time", "position", "is_loss")
    outcome = F.struct("stop", *_END)
    nothing, no_end = F.lit(None).cast(_PIECE), F.lit(None).cast(_OUTCOME)
    points = (
        owed.select(*KEYS, F.col("start").alias("seq"), piece.alias("piece"), no_end.alias("outcome"))
        .unionByName(
            owed.select(*KEYS, F.col("stop").alias("seq"), nothing.alias("piece"), no_end.alias("outcome"))
        )
        .unionByName(
            ends.select(*KEYS, F.col("start").alias("seq"), nothing.alias("piece"), outcome.alias("outcome"))
        )
        .unionByName(
            ends.select(*KEYS, F.col("stop").alias("seq"), nothing.alias("piece"), no_end.alias("outcome"))
        )
    )
    order = Window.partitionBy(*KEYS).orderBy("seq")
    upto = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lines = points.select(
        *KEYS,
        F.col("seq").alias("start"),
        F.lead("seq").over(order).alias("stop"),
        F.last("piece", ignorenulls=True).over(upto).alias("piece"),
        F.last("outcome", ignorenulls=True).over(upto).alias("outcome"),
    ).where("stop > start")
    return lines.select(
        *KEYS,
        "start",
        "stop",
        F.when(F.col("piece.stop") > F.col("start"), F.col("piece")).alias("piece"),
        F.when(F.col("outcome.stop") > F.col("start"), F.col("outcome")).alias("outcome"),
    ).where("piece is not null or outcome is not null")


def _events(condition: Column | None = None) -> Column:
    size = F.col("stop") - F.col("start")
    counted = size if condition is None else F.when(condition, size).otherwise(0)
    return F.coalesce(F.sum(counted), F.lit(0)).cast("bigint")


def _sums() -> list[Column]:
    # What expired before anybody was tried has had no attempt, and no retry either.
    retries = F.greatest(F.col("outcome.attempts") - 1, F.lit(0))
    is_lost = (F.col("outcome.end") == End.LOST.name) | (F.col("outcome").isNull() & F.col("piece.is_loss"))
    return [
        _events(F.col("piece").isNotNull()).alias("published"),
        _events(F.col("outcome.end") == End.ACCEPTED.name).alias("accepted"),
        _events(F.col("outcome.end") == End.DEAD_LETTERED.name).alias("dead_lettered"),
        _events(is_lost).alias("lost"),
        _events(F.col("outcome").isNull() & ~F.col("piece.is_loss")).alias("in_flight"),
        F.coalesce(
            F.sum(F.when(F.col("outcome").isNotNull(), (F.col("stop") - F.col("start")) * retries)), F.lit(0)
        )
        .cast("bigint")
        .alias("retries"),
    ]


def ledger(parts: DataFrame) -> DataFrame:
    """The ledger: a row per node, subscriber and topic."""
    return (
        parts.groupBy(*ACCOUNT, "topic")
        .agg(*_sums(), _events(_wrong()).alias("wrong"))
        .orderBy(*ACCOUNT, "topic")
    )


def windows(parts: DataFrame, window_s: int) -> DataFrame:
    """The ledger per window of the time of publishing."""
    seconds = F.coalesce(F.col("piece.time"), F.col("outcome.time")).cast("double")
    window = F.timestamp_seconds(F.floor(seconds / window_s) * window_s)
    by = parts.withColumn("window", window).groupBy(*ACCOUNT, "topic", "window")
    return by.agg(*_sums(), _events(_wrong()).alias("wrong")).orderBy(*ACCOUNT, "topic", "window")


def latency(parts: DataFrame, by: list[str]) -> DataFrame:
    """Milliseconds from publishing to acceptance: quantiles over events, not over batches."""
    taken = parts.where("outcome.end = 'ACCEPTED' and piece is not null and piece.position >= 0")
    late_ms = (F.col("outcome.time").cast("double") - F.col("piece.time").cast("double")) * 1000
    # Three digits say enough, and keep the quantiles' memory small whatever the number of events.
    exponent = F.pow(F.lit(10.0), F.floor(F.log10(F.greatest(F.abs(late_ms), F.lit(1e-3)))) - 2)
    rounded = (F.round(late_ms / exponent) * exponent).alias("ms")
    sized = taken.select(*by, rounded, (F.col("stop") - F.col("start")).alias("events"))
    quantiles = F.percentile("ms", list(QUANTILES), F.col("events"))
    sums = sized.groupBy(*by).agg(
        F.sum("events").alias("events"),
        F.min("ms").alias("ms_min"),
        quantiles.alias("q"),
        F.max("ms").alias("ms_max"),
    )
    named = [
        F.round(F.col("q")[i], 3).alias(f"ms_p{f'{100 * q:g}'.replace('.', '_')}")
        for i, q in enumerate(QUANTILES)
    ]
    ends = [F.round("ms_min", 3).alias("ms_min"), *named, F.round("ms_max", 3).alias("ms_max")]
    return sums.select(*by, "events", *ends).orderBy(*by)


def _wrong() -> Column:
    """Segments that should not be: ended without being published, missing, or forgotten."""
    is_stray = F.col("piece").isNull()
    is_missing = F.col("piece.is_loss") & (F.coalesce("outcome.end", F.lit("")) != End.LOST.name)
    is_forgotten = (
        F.col("outcome").isNull()
        & (F.col("piece.position") >= 0)
        & (F.col("piece.position") < F.coalesce("floor", F.lit(0)))
    )
    return is_stray | is_missing | is_forgotten


def problems(parts: DataFrame, limit: int = 1000) -> DataFrame:
    """What keeps the ledger from balancing, by range, in words."""
    said = (
        F.when(F.col("piece").isNull(), "ended but was never published")
        .when(
            F.col("piece.is_loss") & F.col("outcome").isNotNull(), "ended, and is missing from every journal"
        )
        .when(F.col("piece.is_loss"), "is missing from every journal")
        .otherwise("has no end, though the node says that nothing so old is owed")
    )
    named = parts.where(_wrong()).withColumn("problem", said)
    same = Window.partitionBy(*KEYS, "problem").orderBy("start")
    # Neighbouring segments with the same problem are one range for a reader.
    begins = F.coalesce(F.lag("stop").over(same) < F.col("start"), F.lit(True)).cast("int")
    run = F.sum(begins).over(same.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    runs = named.withColumn("run", run)
    merged = runs.groupBy(*KEYS, "problem", "run").agg(
        F.min("start").alias("start"), F.max("stop").alias("stop")
    )
    return merged.orderBy(*KEYS, "start").limit(limit).select(*KEYS, "start", "stop", "problem")

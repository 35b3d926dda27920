"""Sums over segments: the ledger, the ledger by time, latency, and the problems that keep it from balancing."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reknit.outcome import FinalOutcome
from reknit.spark.stages.audit.owed import ACCOUNT, KEYS

__all__ = ["latency", "ledger", "problems", "windows"]

QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
NEVER_CAPTURED: Final = (
    "ended, but its event was never captured: it was not published, or its journal is damaged there "
    "(reknit journal verify)"
)


def ledger(parts: DataFrame) -> DataFrame:
    """The ledger: a row per node, subscriber and topic."""
    return parts.groupBy(*ACCOUNT, "topic").agg(*_sums()).orderBy(*ACCOUNT, "topic")


def windows(parts: DataFrame, window_s: int) -> DataFrame:
    """The ledger per window of the time of publishing."""
    seconds = F.coalesce(F.col("piece.time"), F.col("outcome.time")).cast("double")
    window = F.timestamp_seconds(F.floor(seconds / window_s) * window_s)
    by = parts.withColumn("window", window).groupBy(*ACCOUNT, "topic", "window")
    return by.agg(*_sums()).orderBy(*ACCOUNT, "topic", "window")


def _sums() -> list[Column]:
    is_lost = (F.col("outcome.end") == FinalOutcome.LOST.name) | (
        F.col("outcome").isNull() & F.col("piece.is_loss")
    )
    return [
        _events(F.col("piece").isNotNull()).alias("published"),
        _events(F.col("outcome.end") == FinalOutcome.ACCEPTED.name).alias("accepted"),
        _events(F.col("outcome.end") == FinalOutcome.DEAD_LETTERED.name).alias("dead_lettered"),
        _events(is_lost).alias("lost"),
        _events(F.col("outcome").isNull() & ~F.col("piece.is_loss")).alias("in_flight"),
        _retries().alias("retries"),
        _events(_is_wrong()).alias("wrong"),
    ]


def _events(condition: Column) -> Column:
    size = F.col("stop") - F.col("start")
    return F.coalesce(F.sum(F.when(condition, size).otherwise(0)), F.lit(0)).cast("bigint")


def _retries() -> Column:
    # An event that expired before its first attempt has no attempts, and no retries either.
    retries = F.greatest(F.col("outcome.attempts") - 1, F.lit(0))
    counted = F.when(F.col("outcome").isNotNull(), (F.col("stop") - F.col("start")) * retries)
    return F.coalesce(F.sum(counted), F.lit(0)).cast("bigint")


def latency(parts: DataFrame, by: list[str]) -> DataFrame:
    """Milliseconds from publishing to acceptance: quantiles over events, not over batches."""
    accepted = parts.where("outcome.end = 'ACCEPTED' and piece is not null and piece.position >= 0")
    ms = (F.col("outcome.time").cast("double") - F.col("piece.time").cast("double")) * 1000
    # Three digits are enough, and keep the quantiles' memory small for any number of events.
    exponent = F.pow(F.lit(10.0), F.floor(F.log10(F.greatest(F.abs(ms), F.lit(1e-3)))) - 2)
    rounded = (F.round(ms / exponent) * exponent).alias("ms")
    sized = accepted.select(*by, rounded, (F.col("stop") - F.col("start")).alias("events"))
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


def problems(parts: DataFrame, limit: int = 1000) -> DataFrame:
    """The ranges that keep the ledger from balancing, each with its problem in words."""
    named = parts.where(_is_wrong()).withColumn("problem", _problem())
    same = Window.partitionBy(*KEYS, "problem").orderBy("start")
    # Neighbouring segments with the same problem are one range for a reader.
    begins = F.coalesce(F.lag("stop").over(same) < F.col("start"), F.lit(True)).cast("int")
    run = F.sum(begins).over(same.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    runs = named.withColumn("run", run)
    merged = runs.groupBy(*KEYS, "problem", "run").agg(
        F.min("start").alias("start"), F.max("stop").alias("stop")
    )
    return merged.orderBy(*KEYS, "start").limit(limit).select(*KEYS, "start", "stop", "problem")


def _is_wrong() -> Column:
    """True for segments that should not exist: ended without being published, missing, or forgotten."""
    is_stray = F.col("piece").isNull()
    is_missing = F.col("piece.is_loss") & (F.coalesce("outcome.end", F.lit("")) != FinalOutcome.LOST.name)
    is_forgotten = (
        F.col("outcome").isNull()
        & (F.col("piece.position") >= 0)
        & (F.col("piece.position") < F.coalesce("floor", F.lit(0)))
    )
    return is_stray | is_missing | is_forgotten


def _problem() -> Column:
    is_loss = F.col("piece.is_loss")
    return (
        F.when(F.col("piece").isNull(), NEVER_CAPTURED)
        .when(is_loss & F.col("outcome").isNotNull(), "ended, and is missing from every journal")
        .when(is_loss, "is missing from every journal")
        .otherwise("has no outcome, though the node reports that nothing this old is owed")
    )

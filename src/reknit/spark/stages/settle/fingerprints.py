"""Finds settled events that repeat the fingerprint of another event on the same topic."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reknit.spark.lake.spark_tables import Transaction
from reknit.spark.stages.settle.decisions import SERIES

__all__ = ["FINGERPRINT_GRACE_S", "mark_repeated", "skip_repeated", "write_fingerprints"]

FINGERPRINT_GRACE_S: Final = 600.0
"""Two events with the same fingerprint are duplicates if they were published within this time."""


def mark_repeated(known: DataFrame, new: DataFrame) -> DataFrame:
    """All fingerprints with the `first` event that had each, and whether a new one `repeats` it."""
    every = known.withColumn("is_new", F.lit(0)).unionByName(new.withColumn("is_new", F.lit(1)))
    same = Window.partitionBy("topic", "fingerprint").orderBy("is_new", "time", "source", "seq")
    first = F.first(F.struct("source", "seq", "time")).over(same)
    age_s = F.col("time").cast("double") - F.col("first.time").cast("double")
    repeats = (F.row_number().over(same) > 1) & (F.abs(age_s) <= FINGERPRINT_GRACE_S) & (F.col("is_new") == 1)
    return every.persist().withColumn("first", first).withColumn("repeats", repeats)


def write_fingerprints(transaction: Transaction, marked: DataFrame) -> tuple[DataFrame, int]:
    """Write tables `duplicates` and `fingerprints`; returns the repeated events, and how many there are."""
    repeated = marked.where("repeats").select(
        "*", F.col("first.source").alias("first_source"), F.col("first.seq").alias("first_seq")
    )
    count = transaction.write("duplicates", repeated.coalesce(1))
    horizon = F.max("time").over(Window.partitionBy("topic")).cast("double") - FINGERPRINT_GRACE_S
    recent = marked.where("not repeats").withColumn("horizon", horizon)
    recent = recent.where(F.col("time").cast("double") >= F.col("horizon"))
    transaction.write("fingerprints", recent.coalesce(1))
    return repeated, count


def skip_repeated(decided: DataFrame, repeated: DataFrame) -> DataFrame:
    """Decided ranges with column `skip`: the seqs in each settled range that are repeated."""
    is_settled = F.col("what") == "settled"
    seqs = F.broadcast(repeated.select("topic", "source", "seq"))
    inside = decided.join(seqs, SERIES).where(
        is_settled & (F.col("seq") >= F.col("start")) & (F.col("seq") < F.col("stop"))
    )
    by_range = inside.groupBy(*SERIES, "start").agg(F.sort_array(F.collect_set("seq")).alias("skip"))
    joined = decided.join(F.broadcast(by_range), [*SERIES, "start"], "left")
    return joined.withColumn("skip", F.when(is_settled, F.col("skip"))).select(*decided.columns, "skip")

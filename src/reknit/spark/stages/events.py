"""Table `events`: the settled events, one row each, for any tool that reads Parquet."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.spark.lake.commit_log import Lake
from reknit.spark.lake.spark_tables import Transaction, read_files
from reknit.spark.stages.checks import check_sum
from reknit.spark.stages.settle.expand import expand, with_frames
from reknit.spark.stages.settle.expand_files import plan_events, write_events
from reknit.spark.stages.settle.newly_settled import SettledRanges, newly_settled

__all__ = ["events_lake"]


def events_lake(spark: SparkSession, lake: Lake, format: str = "parquet") -> int | None:
    """Bring table `events` up to date. Returns the number of new events, or None if nothing new was settled.

    Raises `DoesNotAddUp` if those are not exactly the events that were settled, and commits nothing then.
    """
    new = newly_settled(lake, "events")
    if new is None:
        return None
    plan = plan_events(lake, new)
    with Transaction(lake, "events", new.id) as transaction:
        if format != "parquet":
            rows = _write_as(format, lake, _events(spark, lake, new), new.id)
        elif plan.tasks:
            rows = transaction.take(write_events(spark, plan, transaction.files({"": "events"})))
        else:
            rows = 0
        check_sum("events", "settled events, without those that repeat others", plan.events, "rows", rows)
        transaction.commit({"through": new.through, "format": format})
    return rows


def _events(spark: SparkSession, lake: Lake, new: SettledRanges) -> DataFrame:
    pieces = read_files(spark, lake, "settled", new.pieces)
    return expand(with_frames(spark, lake, pieces, new.batches))


def _write_as(format: str, lake: Lake, events: DataFrame, id: int) -> int:
    """Write in another table format. Atomically replaces the output of an earlier attempt at this commit."""
    path = str(lake.root / f"events_{format}")
    named = events.withColumn("commit", F.lit(id))
    writer = named.write.format(format)
    if format == "delta":
        writer.mode("overwrite").option("replaceWhere", f"commit = {id}").save(path)
    else:
        writer.mode("overwrite").option("overwrite-mode", "dynamic").partitionBy("commit").save(path)
    return named.sparkSession.read.format(format).load(path).where(F.col("commit") == id).count()

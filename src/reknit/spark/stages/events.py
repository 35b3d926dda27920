"""Table `events`: the settled events, one row each, for any tool that reads Delta tables."""

from __future__ import annotations

from pyspark.sql import SparkSession

from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import Transaction
from reknit.spark.stages.checks import check_sum
from reknit.spark.stages.settle.expand_files import plan_events, write_events
from reknit.spark.stages.settle.newly_settled import newly_settled

__all__ = ["events_lake"]


def events_lake(spark: SparkSession, lake: Lake) -> int | None:
    """Bring table `events` up to date. Returns the number of new events, or None if nothing new was settled.

    Raises `DoesNotAddUp` if those are not exactly the events that were settled, and commits nothing then.
    """
    new = newly_settled(lake, "events")
    if new is None:
        return None
    plan = plan_events(lake, new)
    with Transaction(lake, "events", new.id) as transaction:
        rows = 0
        if plan.tasks:
            rows = transaction.take(write_events(spark, plan, transaction.files({"": "events"})))
        check_sum("events", "settled events, without those that repeat others", plan.events, "rows", rows)
        transaction.commit({"through": new.through})
    return rows

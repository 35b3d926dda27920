"""Table `events`: what was settled, a row an event. Read by whatever reads Parquet."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.spark.lake.commit_log import COMPACT, Lake
from reknit.spark.lake.spark_tables import Transaction, read
from reknit.spark.stages.settle_expand import expand, with_frames

__all__ = ["Settled", "events_lake", "newly_settled"]


class Settled(NamedTuple):
    """What a stage behind settle has not seen yet."""

    id: int
    """The id of the commit that it makes of it."""
    through: int
    pieces: DataFrame
    after_capture: int | None
    through_capture: int | None


def newly_settled(spark: SparkSession, lake: Lake, stage: str) -> Settled | None:
    """The ranges settled since the stage's last commit; None where there are none."""
    last = lake.log(stage).last()
    seen = -1 if last is None else int(last.meta["through"])
    commits = [commit for commit in lake.log("settle").commits() if commit.id > seen]
    if not commits:
        return None
    if last is None and lake.log(COMPACT).last() is not None:
        # A stage that is new in an old lake: single commits were put together, so it reads whole tables.
        return Settled(0, commits[-1].id, read(spark, lake, "settled"), None, None)
    pieces = read(spark, lake, "settled", seen, commits[-1].id)
    after = min(int(commit.meta["since"]) for commit in commits)
    id = 0 if last is None else last.id + 1
    return Settled(id, commits[-1].id, pieces, after, int(commits[-1].meta["through"]))


def events_lake(spark: SparkSession, lake: Lake, format: str = "parquet") -> int | None:
    """Bring table `events` up to date; gives how many were added, None where nothing was settled."""
    new = newly_settled(spark, lake, "events")
    if new is None:
        return None
    frames = with_frames(spark, lake, new.pieces, new.after_capture, new.through_capture)
    with Transaction(lake, "events", new.id) as transaction:
        if format == "parquet":
            rows = transaction.write("events", expand(frames))
        else:
            rows = _write_as(format, lake, expand(frames), new.id)
        transaction.commit({"through": new.through, "format": format})
    return rows


def _write_as(format: str, lake: Lake, events: DataFrame, id: int) -> int:
    """Replace what an earlier try of this commit wrote: the formats themselves make that atomic."""
    path = str(lake.root / f"events_{format}")
    named = events.withColumn("commit", F.lit(id))
    writer = named.write.format(format)
    if format == "delta":
        writer.mode("overwrite").option("replaceWhere", f"commit = {id}").save(path)
    else:
        writer.mode("overwrite").option("overwrite-mode", "dynamic").partitionBy("commit").save(path)
    return named.sparkSession.read.format(format).load(path).where(F.col("commit") == id).count()

"""The ranges that a stage after settle has not processed yet."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from reknit.spark.lake.commit_log import COMPACT, Lake
from reknit.spark.lake.spark_tables import read

__all__ = ["SettledRanges", "newly_settled"]


class SettledRanges(NamedTuple):
    """Settled ranges that a stage has not processed yet."""

    id: int
    """The id of the commit that the stage makes of them."""
    through: int
    """The last commit of settle that they come from."""
    pieces: DataFrame
    after_capture: int | None
    """The captures `(after_capture, through_capture]` hold their batches; None: any capture may."""
    through_capture: int | None


def newly_settled(spark: SparkSession, lake: Lake, stage: str) -> SettledRanges | None:
    """The ranges settled since the stage's last commit; None if there are no new ones."""
    last = lake.log(stage).last()
    seen = -1 if last is None else int(last.meta["through"])
    commits = [commit for commit in lake.log("settle").commits() if commit.id > seen]
    if not commits:
        return None
    if last is None and lake.log(COMPACT).last() is not None:
        # The stage is new in an old lake whose commits were compacted, so it reads whole tables.
        return SettledRanges(0, commits[-1].id, read(spark, lake, "settled"), None, None)
    pieces = read(spark, lake, "settled", seen, commits[-1].id)
    after = min(int(commit.meta["since"]) for commit in commits)
    id = 0 if last is None else last.id + 1
    return SettledRanges(id, commits[-1].id, pieces, after, int(commits[-1].meta["through"]))

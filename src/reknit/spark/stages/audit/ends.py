"""How events ended: the recorded outcomes as disjoint ranges. An event ends once, so its first outcome counts."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from reknit.seqset import SeqSet
from reknit.spark.lake.columns import add, struct
from reknit.spark.stages.audit.owed import ACCOUNT, KEYS

__all__ = ["OUTCOME", "ended_ranges"]

OUTCOME: Final = ["end", "code", "reason", "attempts", "time"]
_COLUMNS: Final = [*KEYS, "start", "stop", *OUTCOME]
_RANGES: Final = (
    "start bigint, stop bigint, end string, code int, reason string, attempts int, time timestamp"
)


def ended_ranges(outcomes: DataFrame, opened: DataFrame, is_lazy: bool) -> DataFrame:
    """The ranges that ended for the subscribers in `opened`, disjoint, with their outcomes.

    Nearly all series already have disjoint outcomes. Those with overlaps take the slower way.
    """
    recorded = outcomes.where("kind = 'outcomes' and topic is not null and start < stop")
    since_opened = F.broadcast(opened.select(*ACCOUNT, "opened_at"))
    current = recorded.join(since_opened, ACCOUNT).where("position > opened_at")
    by = Window.partitionBy(*KEYS)
    before = by.orderBy("start", "stop").rowsBetween(Window.unboundedPreceding, -1)
    m = F.coalesce(F.max("stop").over(before), F.lit(0))
    marked = add(current, overlaps=F.col("start") < m)
    marked = add(marked, is_mixed=F.max("overlaps").over(by))
    marked = marked if is_lazy else marked.persist()
    disjoint = marked.where("not is_mixed").select(*_COLUMNS)
    mixed = marked.where("is_mixed").select(*_COLUMNS, "position", "row")
    if not is_lazy and mixed.isEmpty():
        return disjoint
    return disjoint.unionByName(_without_overlaps(mixed))


def _without_overlaps(mixed: DataFrame) -> DataFrame:
    rows = F.collect_list(F.struct("position", "row", "start", "stop", *OUTCOME)).alias("rows")
    first = F.explode(F.udf(_first_outcomes, ArrayType(struct(_RANGES)), useArrow=False)("rows")).alias(
        "first"
    )
    return mixed.groupBy(*KEYS).agg(rows).select(*KEYS, first).select(*KEYS, "first.*").select(*_COLUMNS)


def _first_outcomes(rows: list[Any]) -> list[dict[str, Any]]:
    """The first outcome of each event of one series, in the journal's order: as `Ledger.settle` decides it."""
    ended = SeqSet()
    first: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["position"], row["row"])):
        for start, stop in ended.missing(row["start"], row["stop"]):
            first.append({**row.asDict(), "start": start, "stop": stop})
        ended.add(row["start"], row["stop"])
    return first

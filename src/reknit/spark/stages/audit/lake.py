"""Audits a lake: everything that the commands and the audit page show, as values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.outcome import FinalOutcome
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.lost_events import LossSummary, accept_losses, lost_events, summary
from reknit.spark.lake.spark_tables import read
from reknit.spark.stages.audit.alignment import segments
from reknit.spark.stages.audit.totals import latency, ledger, problems, windows
from reknit.spark.stages.dead_letters import dead_letters_by

__all__ = [
    "Audit",
    "AuditRow",
    "LedgerProblem",
    "SeriesCoverage",
    "audit_lake",
    "latency_lake",
    "losses_lake",
    "plain_row",
]

STRIPS_MAX: Final = 40
RANGES_MAX: Final = 5000
WINDOWS_MAX: Final = 5000
PROBLEMS_MAX: Final = 1000


class AuditRow(msgspec.Struct, frozen=True):
    """A row of the ledger; with `window`, the part of it that was published in that window."""

    node: str
    subscriber: str
    topic: str
    published: int
    accepted: int
    dead_lettered: int
    lost: int
    in_flight: int
    retries: int
    wrong: int
    """Events with a problem."""
    window: str = ""

    @property
    def balanced(self) -> bool:
        ended = self.accepted + self.dead_lettered + self.lost
        return self.wrong == 0 and self.published == ended + self.in_flight


class LedgerProblem(msgspec.Struct, frozen=True):
    """Events `[start, stop)` that keep the ledger from balancing, and why."""

    node: str
    subscriber: str
    topic: str
    source: str
    start: int
    stop: int
    problem: str


class SeriesCoverage(msgspec.Struct):
    """One series: how far it is decided, and which ranges are lost, late or held."""

    topic: str
    source: str
    next: int
    lost: list[tuple[int, int, str]] = []
    late: list[tuple[int, int]] = []
    held: list[tuple[int, int]] = []

    def add(self, table: str, row: Any) -> None:
        """Add a range from table `losses`, `late` or `held`."""
        bounds = (row["start"], row["stop"])
        match table:
            case "losses":
                self.lost.append((*bounds, row["reason"]))
            case "late":
                self.late.append(bounds)
            case "held":
                self.held.append(bounds)


class Audit(msgspec.Struct, frozen=True):
    """The result of an audit. `positions` says, per node, up to where both sides of the ledger are complete.

    It has more than 15 fields because the report and `--json` show each of them.
    """

    lake: str
    time_us: int
    positions: dict[str, int]
    rows: list[AuditRow]
    problems: list[LedgerProblem]
    windows: list[AuditRow] = []
    latency: list[dict[str, Any]] = []
    letters: list[dict[str, Any]] = []
    strips: list[SeriesCoverage] = []
    streams: int = 0
    events: int = 0
    lost: int = 0
    """Events that have a number but are in no journal, whether or not anyone subscribed to them."""
    losses: LossSummary = LossSummary()
    """These and the events that were lost for a subscriber, each once; and which of them were accepted."""
    late: int = 0
    held: int = 0
    recovered: int = 0
    duplicates: int = 0

    @property
    def balanced(self) -> bool:
        return not self.problems and all(row.balanced for row in self.rows)

    @property
    def is_good(self) -> bool:
        """Whether it balances, and nothing is lost but what was accepted."""
        return self.balanced and not self.losses.unaccepted


def audit_lake(
    spark: SparkSession, lake: Lake, window_s: int = 3600, is_full: bool = True, accepts: Sequence[str] = ()
) -> Audit:
    """Audit a lake. Without `is_full`, only the ledger, its problems and the losses.

    `accepts` names losses to accept from now on, as `lost_events.parse_range` reads them.
    """
    cut = _cut(lake)
    parts = _segments(spark, lake, cut).persist()
    try:
        return Audit(
            lake.storage.root,
            time.time_ns() // 1000,
            cut,
            [AuditRow(**row.asDict()) for row in ledger(parts).collect()],
            [LedgerProblem(**plain_row(row)) for row in problems(parts, PROBLEMS_MAX).collect()],
            losses=_losses(lake, parts, accepts),
            **(_details(spark, lake, parts, window_s) if is_full else {}),
        )
    finally:
        parts.unpersist()


def _losses(lake: Lake, parts: DataFrame, accepts: Sequence[str]) -> LossSummary:
    """What is lost, after what `accepts` names was accepted."""
    of_subscribers = parts.where(F.col("outcome.end") == FinalOutcome.LOST.name)
    rows = of_subscribers.select("topic", "source", "start", "stop").distinct().toLocalIterator()
    losses = lost_events(lake, ((row[0], bytes(row[1]), row[2], row[3]) for row in rows))
    accept_losses(lake, accepts, losses)
    return summary(lake, losses)


def _segments(spark: SparkSession, lake: Lake, cut: dict[str, int]) -> DataFrame:
    slim = read(spark, lake, "batches").drop("data")
    losses = read(spark, lake, "losses") if lake.files("losses") else None
    return segments(slim, read(spark, lake, "outcomes"), losses, cut)


def latency_lake(spark: SparkSession, lake: Lake, by: list[str]) -> list[dict[str, Any]]:
    """Quantiles of the time from publishing to acceptance, grouped by the columns `by`."""
    return [plain_row(row) for row in latency(_segments(spark, lake, _cut(lake)), by).collect()]


def _details(spark: SparkSession, lake: Lake, parts: DataFrame, window_s: int) -> dict[str, Any]:
    """The fields of a full audit."""
    lines = windows(parts, window_s).limit(WINDOWS_MAX).collect()
    letters = dead_letters_by(read(spark, lake, "dead_letters"), ["reason", "topic", "subscriber"])
    return {
        "windows": [AuditRow(**{**r.asDict(), "window": _stamp(r["window"])}) for r in lines],
        "latency": [plain_row(row) for row in latency(parts, ["node", "subscriber", "topic"]).collect()],
        "letters": [plain_row(row) for row in letters.limit(PROBLEMS_MAX).collect()],
        "strips": _strips(spark, lake),
        "events": _count_events(spark, lake, "settled"),
        "lost": _count_events(spark, lake, "losses", "reason = 'missing'"),
        "late": _count_events(spark, lake, "late"),
        "held": _count_events(spark, lake, "held"),
        "recovered": sum(file.rows for file in lake.files("recovered")),
        "duplicates": sum(file.rows for file in lake.files("duplicates")),
        "streams": sum(file.rows for file in lake.files("coverage")),
    }


def _count_events(spark: SparkSession, lake: Lake, table: str, where: str = "true") -> int:
    """The number of events in a table of ranges."""
    if not lake.files(table):
        return 0
    found = read(spark, lake, table).where(where).agg(F.sum(F.col("stop") - F.col("start"))).first()
    return int(found[0] or 0) if found is not None else 0


def _cut(lake: Lake) -> dict[str, int]:
    """Per node, the position up to which both batches and outcomes were captured."""
    ends = []
    for stage in ("capture_batches", "capture_outcomes"):
        last = lake.log(stage).last()
        ends.append({} if last is None else dict(last.meta.get("ends") or {}))
    both = ends[0].keys() & ends[1].keys()
    return {node: min(int(end[node]) for end in ends) for node in sorted(both)}


def _strips(spark: SparkSession, lake: Lake) -> list[SeriesCoverage]:
    """The series with the most losses, then the longest."""
    size = F.aggregate("lost", F.lit(0).cast("bigint"), lambda sum, r: sum + r["stop"] - r["start"])
    rows = read(spark, lake, "coverage").withColumn("size", size)
    top = rows.orderBy(F.desc("size"), F.desc("next"), "topic", "source").limit(STRIPS_MAX).collect()
    strips = {
        (row["topic"], bytes(row["source"])): SeriesCoverage(
            row["topic"], bytes(row["source"]).hex(), row["next"]
        )
        for row in top
    }
    for table in ("losses", "late", "held"):
        for row in read(spark, lake, table).limit(RANGES_MAX).collect() if lake.files(table) else ():
            strip = strips.get((row["topic"], bytes(row["source"])))
            if strip is not None:
                strip.add(table, row)
    return list(strips.values())


def losses_lake(spark: SparkSession, lake: Lake, topic: str = "", limit: int = 1000) -> list[dict[str, Any]]:
    """The lost ranges, and how many events of each came late."""
    losses = read(spark, lake, "losses")
    losses = losses.where(F.col("topic") == topic) if topic else losses
    late = read(spark, lake, "late").select(
        "topic", "source", F.col("start").alias("a"), F.col("stop").alias("b")
    )
    overlap = F.greatest(F.lit(0), F.least("stop", "b") - F.greatest("start", "a"))
    # `least` and `greatest` ignore nulls, so a loss without late events would count as wholly late.
    overlap = F.when(F.col("a").isNotNull(), overlap)
    came = (
        losses.join(late, ["topic", "source"], "left")
        .groupBy(*losses.columns)
        .agg(F.coalesce(F.sum(overlap), F.lit(0)).cast("bigint").alias("came_late"))
    )
    named = came.withColumn("events", F.col("stop") - F.col("start"))
    columns = ["topic", "source", "start", "stop", "events", "came_late", "reason", "noticed", "time"]
    return [
        plain_row(row)
        for row in named.orderBy("topic", "source", "start").limit(limit).select(*columns).collect()
    ]


def plain_row(row: Any) -> dict[str, Any]:
    """A row for JSON and for people: ids in hex, times in ISO format."""
    return {name: _value(value) for name, value in row.asDict().items()}


def _value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return _stamp(value) if hasattr(value, "isoformat") else value


def _stamp(value: Any) -> str:
    return "" if value is None else f"{value.isoformat(sep=' ', timespec='milliseconds')}Z"

"""Carrying settle out on a lake: read what was captured since, decide, recover, commit all its tables at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from reknit.batch import Batch
from reknit.spark.lake.commit_log import Commit, Lake
from reknit.spark.lake.spark_tables import Transaction, day_of, key_of, read
from reknit.spark.lake.tables import TABLE_OF
from reknit.spark.stages.settle import STREAM, candidates, covered, decide
from reknit.spark.stages.settle_expand import HEAD, fingerprints, with_frames
from reknit.spark.stages.settle_recover import Cache, Found, Gap, recover

__all__ = ["SettleReport", "settle_lake"]

GAPS_MAX: Final = 10_000
"""So many gaps are asked for in one run; the rest by the next."""
SMALL_ROWS: Final = 200_000
"""Up to here one file a folder is enough."""
FOREVER_S: Final = 10 * 365 * 86_400.0
FINGERPRINT_GRACE_S: Final = 600.0
_TABLES: Final = {"settled": "settled", "lost": "losses", "late": "late", "held": "held"}


class SettleReport(msgspec.Struct, frozen=True):
    """What one run decided, in events."""

    id: int
    settled: int = 0
    held: int = 0
    gap: int = 0
    lost: int = 0
    late: int = 0
    recovered: int = 0
    duplicates: int = 0
    batches: int = 0
    """Rows that were read."""
    rows: int = 0


def settle_lake(
    spark: SparkSession,
    lake: Lake,
    grace_s: float,
    caches: Iterable[tuple[str, Cache]] = (),
    now: datetime | None = None,
) -> SettleReport | None:
    """Settle everything captured since the last run; None where there is nothing to do."""
    last = lake.log("settle").last()
    newest = lake.log("capture_batches").last()
    held_rows = sum(file.rows for file in lake.files("held"))
    through = -1 if last is None else int(last.meta["through"])
    if newest is None or (newest.id == through and not held_rows):
        return None
    run = _Run(spark, lake, last, newest.id, now or datetime.now(UTC))
    return run.settle(grace_s, list(caches))


class _Run:
    """One run: what it reads, and what it writes."""

    def __init__(
        self, spark: SparkSession, lake: Lake, last: Commit | None, newest: int, now: datetime
    ) -> None:
        self.spark, self.lake, self.now = spark, lake, now
        self.id = 0 if last is None else last.id + 1
        self.after = -1 if last is None else int(last.meta["through"])
        self.newest = newest
        held = lake.files("held")
        # What is held was captured before: whoever joins it with its frames must look back as far.
        self.since = int(last.meta["since"]) if last is not None and held else self.after
        self.coverage = read(spark, lake, "coverage") if last is not None else None
        new = read(spark, lake, "batches", self.after, newest)
        self.rows = candidates(new, "batches", now)
        self.batches = sum(file.rows for file in lake.files("batches", self.after, newest))
        if held:
            columns = self.rows.columns
            self.rows = self.rows.unionByName(read(spark, lake, "held").select(*columns))

    def settle(self, grace_s: float, caches: Sequence[tuple[str, Cache]]) -> SettleReport:
        decided = decide(self.rows, self.coverage, self.now, grace_s).persist()
        try:
            counts = _counts(decided)
            found = Found([], True)
            if caches and ("gap" in counts or "lost" in counts):
                found = recover(_gaps(decided), caches)
            with Transaction(self.lake, "settle", self.id) as transaction:
                if found.batches or not found.is_complete:
                    self._add(transaction, found.batches)
                    decided.unpersist()
                    # A gap is given up only after everyone was asked who may have it.
                    grace_s = grace_s if found.is_complete else FOREVER_S
                    decided = decide(self.rows, self.coverage, self.now, grace_s).persist()
                    counts = _counts(decided)
                return self._commit(transaction, decided, counts, found)
        finally:
            decided.unpersist()

    def _add(self, transaction: Transaction, found: list[tuple[str, Batch]]) -> None:
        if not found:
            return
        table = _recovered(found, self.id)
        transaction.write_arrow("recovered", table)
        slim = self.spark.createDataFrame(table.drop_columns(["data"]))
        self.rows = self.rows.unionByName(candidates(slim, "recovered", self.now))

    def _commit(
        self,
        transaction: Transaction,
        decided: DataFrame,
        counts: dict[str, tuple[int, int, int]],
        found: Found,
    ) -> SettleReport:
        rows = sum(n for n, _, _ in counts.values())
        skipped, duplicates = decided.withColumn("skip", F.lit(None).cast("array<bigint>")), 0
        if counts.get("settled", (0, 0, 0))[2]:
            skipped, duplicates = self._skip_repeated(transaction, decided, found)
        out = skipped.where(F.col("what") != "gap").withColumns(
            {
                "arrived": F.lit(self.now),
                "time": F.when(F.col("what") == "lost", F.lit(self.now)).otherwise(F.col("time")),
            }
        )
        placed = out.withColumns({"day": day_of(F.col("time")), "topic_key": key_of(F.col("topic"))})
        if rows <= SMALL_ROWS:
            placed = placed.coalesce(1)
        placed = placed.sortWithinPartitions("what", "day", "topic_key", *STREAM, "start")
        transaction.write_parts(placed, _TABLES, ["day", "topic_key"])
        coverage = covered(self.coverage, decided)
        transaction.write("coverage", coverage.coalesce(1) if rows <= SMALL_ROWS else coverage)
        sums = {what: events for what, (_, events, _) in counts.items()}
        report = SettleReport(
            self.id,
            recovered=sum(batch.count for _, batch in found.batches),
            duplicates=duplicates,
            batches=self.batches,
            rows=rows,
            **sums,
        )
        meta = {"through": self.newest, "since": self.since, "report": msgspec.to_builtins(report)}
        transaction.commit(meta)
        return report

    def _skip_repeated(
        self, transaction: Transaction, decided: DataFrame, found: Found
    ) -> tuple[DataFrame, int]:
        """Note which settled events repeat the fingerprint of another on the same topic."""
        pieces = decided.where("what = 'settled' and columns_bytes > 0")
        pieces = pieces.withColumn("skip", F.lit(None).cast("array<bigint>"))
        frames = with_frames(self.spark, self.lake, pieces, self.since, self.newest)
        if found.batches:
            local = self.spark.createDataFrame(_recovered(found.batches, self.id))
            again = local.select("node", "position", *HEAD).join(
                pieces.where("origin = 'recovered'"), ["node", "position"]
            )
            frames = frames.unionByName(again.select(*frames.columns))
        known = read(self.spark, self.lake, "fingerprints").withColumn("is_known", F.lit(0))
        new = fingerprints(frames).withColumn("is_known", F.lit(1))
        every = known.unionByName(new).persist()
        same = Window.partitionBy("topic", "fingerprint").orderBy("is_known", "time", "source", "seq")
        first = F.first(F.struct("source", "seq", "time")).over(same)
        age_s = F.col("time").cast("double") - F.col("first.time").cast("double")
        marked = every.withColumn("first", first).withColumn(
            "repeats",
            (F.row_number().over(same) > 1)
            & (F.abs(age_s) <= FINGERPRINT_GRACE_S)
            & (F.col("is_known") == 1),
        )
        repeated = marked.where("repeats").select(
            "*", F.col("first.source").alias("first_source"), F.col("first.seq").alias("first_seq")
        )
        count = transaction.write("duplicates", repeated.coalesce(1))
        horizon = F.max("time").over(Window.partitionBy("topic")).cast("double") - FINGERPRINT_GRACE_S
        kept = marked.where("not repeats").withColumn("horizon", horizon)
        transaction.write(
            "fingerprints", kept.where(F.col("time").cast("double") >= F.col("horizon")).coalesce(1)
        )
        skips = repeated.select("topic", "source", "seq")
        piece = decided.join(F.broadcast(skips), STREAM).where(
            (F.col("what") == "settled") & (F.col("seq") >= F.col("start")) & (F.col("seq") < F.col("stop"))
        )
        by_piece = piece.groupBy(*STREAM, "start").agg(F.sort_array(F.collect_set("seq")).alias("skip"))
        joined = decided.join(F.broadcast(by_piece), [*STREAM, "start"], "left")
        is_settled = F.col("what") == "settled"
        return joined.withColumn("skip", F.when(is_settled, F.col("skip"))).select(
            *decided.columns, "skip"
        ), count


def _counts(decided: DataFrame) -> dict[str, tuple[int, int, int]]:
    """For each `what`: rows, events, and rows whose batch has columns."""
    sums = decided.groupBy("what").agg(
        F.count("*"), F.sum(F.col("stop") - F.col("start")), F.sum((F.col("columns_bytes") > 0).cast("int"))
    )
    return {row[0]: (int(row[1]), int(row[2]), int(row[3] or 0)) for row in sums.collect()}


def _gaps(decided: DataFrame) -> list[Gap]:
    """The oldest gaps, merged where the same one shows in several rows."""
    missing = decided.where(F.col("what").isin("gap", "lost")).orderBy("noticed", *STREAM, "start")
    return [
        Gap(row["topic"], bytes(row["source"]), row["start"], row["stop"])
        for row in missing.select(*STREAM, "start", "stop").limit(GAPS_MAX).collect()
    ]


_ARROW: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _recovered(found: list[tuple[str, Batch]], id: int) -> pa.Table:
    """Rows of table `recovered`. A position of its own tells each from every other one of any run."""
    columns = TABLE_OF["recovered"].columns
    rows = []
    for index, (name, batch) in enumerate(found):
        head = batch.head
        rows.append(
            {
                "node": name,
                "position": id * 1_000_000_000 + index,
                "stop": head.stop,
                "time": head.time_us,
                "data": bytes(batch.data),
                "columns_bytes": int.from_bytes(bytes(batch.data[60:64]), "little"),
            }
            | {
                n: getattr(head, n)
                for n in ("topic", "source", "first", "count", "ttl_ms", "priority", "type", "length")
            }
        )
    schema = pa.schema([(column.name, _ARROW[column.type]) for column in columns])
    return pa.Table.from_pylist(rows, schema)

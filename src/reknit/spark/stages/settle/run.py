"""Runs settle on a lake: reads what was captured since the last run, decides, recovers, commits all tables at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.batch import Batch
from reknit.batch_layout import COLUMNS_LEN_AT
from reknit.spark.lake.captured_files import EarlierBatches, captured_files, earlier_batches
from reknit.spark.lake.commits import Commit, LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import (
    Transaction,
    read,
    read_heads,
)
from reknit.spark.lake.storage import read_columns
from reknit.spark.lake.tables import TABLE_OF
from reknit.spark.stages.checks import check_sum
from reknit.spark.stages.settle.decisions import SERIES, candidates, covered, decide
from reknit.spark.stages.settle.expand import HEAD, fingerprints, with_frames
from reknit.spark.stages.settle.fingerprints import mark_repeated, skip_repeated, write_fingerprints
from reknit.spark.stages.settle.recover import EventCache, RecoveryResult, SeriesGap, recover

__all__ = ["SettleReport", "settle_lake"]

GAPS_MAX: Final = 100_000
"""One run asks for at most this many gaps, the oldest; the next run takes the rest."""
SMALL_ROWS: Final = 200_000
"""Up to this many rows, one file per folder is enough."""
FOREVER_S: Final = 10 * 365 * 86_400.0
_TABLES: Final = {"settled": "settled", "lost": "losses", "late": "late", "held": "held"}


class SettleReport(msgspec.Struct, frozen=True):
    """What one run decided, counted in events."""

    id: int
    settled: int = 0
    held: int = 0
    gap: int = 0
    lost: int = 0
    late: int = 0
    recovered: int = 0
    duplicates: int = 0
    captured: int = 0
    """Events of the batches that were read, and of those that were held back before."""
    repeated: int = 0
    """Of those and of the recovered ones, events that were there before."""
    batches: int = 0
    """Captured batches that were read."""
    rows: int = 0
    unasked: int = 0
    """Gaps that this run did not ask for, though every cache could be asked: another run will."""


def settle_lake(
    spark: SparkSession,
    lake: Lake,
    grace_s: float,
    caches: Iterable[tuple[str, EventCache]] = (),
    now: datetime | None = None,
) -> SettleReport | None:
    """Settle everything captured since the last run; None if there is nothing to do."""
    last = lake.log("settle").last()
    newest = lake.log("capture_batches").last()
    held_rows = sum(file.rows for file in lake.files("held"))
    through = -1 if last is None else int(last.meta["through"])
    if newest is None or (newest.id == through and not held_rows):
        return None
    run = _SettleRun(spark, lake, last, newest.id, now or datetime.now(UTC))
    return run.settle(grace_s, list(caches))


class _SettleRun:
    """One run: the rows that it decides about, and the commit that it makes."""

    def __init__(
        self, spark: SparkSession, lake: Lake, last: Commit | None, newest: int, now: datetime
    ) -> None:
        self.spark, self.lake, self.now = spark, lake, now
        self.id = 0 if last is None else last.id + 1
        self.after = -1 if last is None else int(last.meta["through"])
        self.newest = newest
        held = lake.files("held")
        self.has_held = bool(held)
        self.coverage = read(spark, lake, "coverage") if last is not None else None
        files = lake.files("batches", self.after, newest)
        self.rows = candidates(read_heads(spark, lake, files), "batches", now, F.col("captured"))
        self.batches = sum(file.rows for file in files)
        self.captured = _events_of([*files, *held])
        self.decided_before = None if last is None else last.meta.get("decided")
        if held:
            columns = self.rows.columns
            self.rows = self.rows.unionByName(read(spark, lake, "held").select(*columns))

    def settle(self, grace_s: float, caches: Sequence[tuple[str, EventCache]]) -> SettleReport:
        decided = decide(self.rows, self.coverage, self.now, grace_s).persist()
        try:
            counts = _counts(decided)
            found = RecoveryResult([], [], True)
            gaps = _gap_rows(counts)
            if caches and gaps:
                found = recover(_gaps(decided), caches)
            with Transaction(self.lake, "settle", self.id) as transaction:
                is_complete = found.is_complete and gaps <= GAPS_MAX
                if found.batches or not is_complete:
                    self._add_recovered(transaction, found.batches)
                    decided.unpersist()
                    asked = None if is_complete else self._asked(found.asked)
                    decided = decide(self.rows, self.coverage, self.now, grace_s, asked).persist()
                    counts = _counts(decided)
                unasked = gaps - len(found.asked) if found.is_reachable and caches else 0
                return self._commit(transaction, decided, counts, found, unasked)
        finally:
            decided.unpersist()

    def _asked(self, gaps: list[SeriesGap]) -> DataFrame:
        """A gap is given up only after every cache was asked for it."""
        columns = ([getattr(gap, name) for gap in gaps] for name in SeriesGap._fields)
        return self.spark.createDataFrame(pa.table(list(columns), schema=_GAPS))

    def _add_recovered(self, transaction: Transaction, found: list[tuple[str, Batch]]) -> None:
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
        counts: Counts,
        found: RecoveryResult,
        unasked: int,
    ) -> SettleReport:
        rows = sum(count.rows for count in counts.values())
        earlier, kept = self._earlier(decided, counts)
        ranges, duplicates = decided.withColumn("skip", _no_skips()), 0
        if "settled" in counts and counts["settled"].rows_with_columns:
            ranges, duplicates = self._skip_repeated(transaction, decided, found, earlier)
        self._write_ranges(transaction, ranges, is_small=rows <= SMALL_ROWS)
        coverage = covered(self.coverage, decided)
        transaction.write("coverage", coverage.coalesce(1) if rows <= SMALL_ROWS else coverage)
        recovered = sum(batch.count for _, batch in found.batches)
        repeated = sum(_events(counts, what) for what in ("repeated", "known")) - _events(counts, "late")
        decided_now = self._check_sums(transaction, recovered - repeated)
        report = SettleReport(
            self.id,
            recovered=recovered,
            duplicates=duplicates,
            captured=self.captured or 0,
            repeated=repeated,
            batches=self.batches,
            rows=rows,
            unasked=unasked,
            **{what: _events(counts, what) for what in ("settled", "held", "gap", "lost", "late")},
        )
        places = {"through": self.newest, "since": self.after, "earlier": earlier, "kept": kept}
        transaction.commit({**places, "decided": decided_now, "report": msgspec.to_builtins(report)})
        return report

    def _check_sums(self, transaction: Transaction, more: int) -> int:
        """Raise `DoesNotAddUp` if what was written is not what was captured, with `more` events of other origin.

        Returns how many events were ever decided, as the coverage has it. A lake that an older reknit wrote does not
        say how many events its files hold: then there is nothing to compare with.
        """
        written = {table: transaction.events(table) for table in _TABLES.values()}
        if self.captured is not None:
            kept = written["settled"] + written["held"] + written["late"]
            given = "captured, without repeated ones"
            check_sum("settle", given, self.captured + more, "settled, held and late", kept)
        decided = _decided_events(transaction.paths("coverage"))
        if self.decided_before is not None or self.coverage is None:
            news = written["settled"] + written["losses"]
            check_sum(
                "settle", "newly covered", decided - (self.decided_before or 0), "settled and lost", news
            )
        return decided

    def _earlier(self, decided: DataFrame, counts: Counts) -> tuple[EarlierBatches, EarlierBatches]:
        """Where the batches are of settled ranges that had been held back, and of those that are held now."""
        if not self.has_held and "held" not in counts:
            return {}, {}
        is_new = (F.col("captured") > self.after) & (F.col("what") == "settled")
        ranges = decided.where("what in ('settled', 'held') and origin = 'batches'")
        rows = ranges.where(~F.coalesce(is_new, F.lit(False))).select("what", "captured", "topic").distinct()
        found: dict[str, list[tuple[int | None, str]]] = {"settled": [], "held": []}
        for what, captured, topic in rows.collect():
            found[what].append((captured, topic))
        return earlier_batches(found["settled"]), earlier_batches(found["held"])

    def _write_ranges(self, transaction: Transaction, ranges: DataFrame, is_small: bool) -> None:
        """Write each range to the table of its decision."""
        time = F.when(F.col("what") == "lost", F.lit(self.now)).otherwise(F.col("time"))
        out = ranges.where(F.col("what").isin(list(_TABLES))).withColumns(
            {"arrived": F.lit(self.now), "time": time}
        )
        if is_small:
            out = out.coalesce(1)
        transaction.write_parts(out.sortWithinPartitions("what", *SERIES, "start"), _TABLES)

    def _skip_repeated(
        self, transaction: Transaction, decided: DataFrame, found: RecoveryResult, earlier: EarlierBatches
    ) -> tuple[DataFrame, int]:
        """Mark the settled events that repeat the fingerprint of another; also returns how many there are."""
        known = read(self.spark, self.lake, "fingerprints")
        marked = mark_repeated(known, fingerprints(self._frames_with_columns(decided, found, earlier)))
        repeated, count = write_fingerprints(transaction, marked)
        return skip_repeated(decided, repeated), count

    def _frames_with_columns(
        self, decided: DataFrame, found: RecoveryResult, earlier: EarlierBatches
    ) -> DataFrame:
        """The settled ranges whose batches have columns, with the frames, also those that were just recovered."""
        pieces = decided.where("what = 'settled' and columns_bytes > 0").withColumn("skip", _no_skips())
        files = captured_files(self.lake, self.after, self.newest, earlier)
        frames = with_frames(self.spark, self.lake, pieces, files)
        if not found.batches:
            return frames
        recovered = self.spark.createDataFrame(_recovered(found.batches, self.id))
        joined = recovered.select("node", "position", *HEAD).join(
            pieces.where("origin = 'recovered'"), ["node", "position"]
        )
        return frames.unionByName(joined.select(*frames.columns))


class _Count(NamedTuple):
    """How much was decided in one way."""

    rows: int
    events: int
    rows_with_columns: int


Counts = dict[str, _Count]
"""Per decision (`what`)."""


def _counts(decided: DataFrame) -> Counts:
    sums = decided.groupBy("what").agg(
        F.count("*"), F.sum(F.col("stop") - F.col("start")), F.sum((F.col("columns_bytes") > 0).cast("int"))
    )
    return {row[0]: _Count(int(row[1]), int(row[2]), int(row[3] or 0)) for row in sums.collect()}


def _events(counts: Counts, what: str) -> int:
    return counts[what].events if what in counts else 0


def _events_of(files: Iterable[LakeFile]) -> int | None:
    """The events in files; None if a file does not say."""
    counts = [file.events for file in files]
    return None if None in counts else sum(filter(None, counts))


def _decided_events(paths: Iterable[str]) -> int:
    """The events before `next` of every series."""
    columns = [read_columns(path, ["next"])["next"] for path in paths]
    return sum((pc.sum(column).as_py() or 0) - len(column) for column in columns)


def _gap_rows(counts: Counts) -> int:
    return sum(counts[what].rows for what in ("gap", "lost") if what in counts)


def _no_skips() -> Column:
    return F.lit(None).cast("array<bigint>")


def _gaps(decided: DataFrame) -> list[SeriesGap]:
    """The oldest gaps."""
    missing = decided.where(F.col("what").isin("gap", "lost")).orderBy("noticed", *SERIES, "start")
    return [
        SeriesGap(row["topic"], bytes(row["source"]), row["start"], row["stop"])
        for row in missing.select(*SERIES, "start", "stop").limit(GAPS_MAX).collect()
    ]


_GAPS: Final = pa.schema(
    {"topic": pa.string(), "source": pa.binary(), "start": pa.int64(), "stop": pa.int64()}
)
_ARROW: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _recovered(found: list[tuple[str, Batch]], id: int) -> pa.Table:
    """Rows of table `recovered`. Each has a position of its own, unique over all runs."""
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
                "columns_bytes": int.from_bytes(batch.data[COLUMNS_LEN_AT], "little"),
            }
            | {
                n: getattr(head, n)
                for n in ("topic", "source", "first", "count", "ttl_ms", "priority", "type", "length")
            }
        )
    schema = pa.schema([(column.name, _ARROW[column.type]) for column in columns])
    return pa.Table.from_pylist(rows, schema)

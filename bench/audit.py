"""How fast the tables are settled and audited: `python -m bench.audit [--events 100000000] [--batch 1000]`.

It builds tables of ranges (batches without payloads, and their outcomes) with planted losses and duplicates, measures
settle and audit on them, and checks that they find exactly what was planted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.spark.lake.tables import TABLE_OF
from reknit.spark.runtime.session import build_session
from reknit.spark.source.schema import OUTCOMES
from reknit.spark.stages.audit import ledger, problems, segments
from reknit.spark.stages.capture import outcome_rows
from reknit.spark.stages.settle import settle

LOSSES = 10
"""The number of batches that are removed, each of another source, and that nobody accepts."""
REPEAT_EVERY = 100
"""One in so many batches is there twice."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def make_batches(spark: SparkSession, events: int, size: int, sources: int) -> DataFrame:
    """Rows of table `batches` without payloads: `sources` interleaved series, with planted faults."""
    rows = spark.range(events // size)
    source, at = F.col("id") % sources, F.floor(F.col("id") / sources)
    made = rows.select(
        F.lit("line1").alias("node"),
        (F.col("id") * 64).alias("position"),
        F.lit("plant/temp").alias("topic"),
        F.unhex(F.md5(source.cast("string"))).alias("source"),
        (at * size + 1).alias("first"),
        (at * size + 1 + size).alias("stop"),
        F.lit(size).alias("count"),
        (F.lit(START) + F.make_dt_interval(secs=F.col("id") / 1000)).alias("time"),
        *(F.lit(0).alias(name) for name in ("ttl_ms", "priority", "type", "length", "columns_bytes")),
        F.lit(None).cast("binary").alias("data"),
        ((source < LOSSES) & (at == 5)).alias("is_lost"),
        (F.col("id") % REPEAT_EVERY == 0).alias("is_repeated"),
    )
    kept = made.where("not is_lost")
    return kept.unionByName(kept.where("is_repeated")).select(*TABLE_OF["batches"].names)


def make_outcomes(spark: SparkSession, batches: DataFrame) -> DataFrame:
    """Rows of table `outcomes`: one subscriber accepts every batch once, five milliseconds after it was sent."""
    ended = batches.dropDuplicates(["source", "first"]).select(
        "node",
        (F.col("position") + (1 << 40)).alias("position"),
        F.lit(0).alias("row"),
        F.lit("outcomes").alias("kind"),
        F.lit("dash").alias("subscriber"),
        "topic",
        "source",
        F.col("first").alias("start"),
        "stop",
        F.lit("ACCEPTED").alias("end"),
        F.lit(1).alias("attempts"),
        (F.col("time") + F.expr("interval 5 milliseconds")).alias("time"),
    )
    opened = spark.createDataFrame(
        [("line1", 0, "opened", "dash", "plant/**")],
        "node string, position bigint, kind string, subscriber string, pattern string",
    )
    both = ended.unionByName(opened, allowMissingColumns=True)
    for field in OUTCOMES.fields:
        if field.name not in both.columns:
            both = both.withColumn(field.name, F.lit(None).cast(field.dataType))
    return outcome_rows(both)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def measure(spark: SparkSession, folder: Path, events: int, size: int, sources: int) -> dict[str, Any]:
    """Build the tables, settle and audit them, and check the findings."""
    name = folder / str(events)
    make_batches(spark, events, size, sources).write.parquet(f"{name}-batches")
    batches = spark.read.parquet(f"{name}-batches")
    make_outcomes(spark, batches).write.parquet(f"{name}-outcomes")
    outcomes = spark.read.parquet(f"{name}-outcomes")
    losses = LOSSES * size

    def settle_all() -> Any:
        sums = settle(batches).groupBy("what").agg(F.sum(F.col("stop") - F.col("start")))
        return {row[0]: row[1] for row in sums.collect()}

    def audit_all() -> Any:
        lost = settle(batches).where("what = 'lost'").persist()
        parts = segments(batches, outcomes, lost).persist()
        rows, wrong = ledger(parts).collect(), problems(parts).collect()
        parts.unpersist()
        return rows, wrong

    settle_s, settled = timed(settle_all)
    assert settled == {"settled": events - losses, "lost": losses}, settled
    audit_s, (rows, wrong) = timed(audit_all)
    assert [row["published"] for row in rows] == [events], rows
    assert (rows[0]["accepted"], rows[0]["lost"]) == (events - losses, losses), rows
    assert len(wrong) == LOSSES, wrong
    return {
        "events": events,
        "batch": size,
        "sources": sources,
        "rows": events // size,
        "settle_s": round(settle_s, 2),
        "settle_events_s": round(events / settle_s),
        "audit_s": round(audit_s, 2),
        "audit_events_s": round(events / audit_s),
        "audit_rows_s": round(events / size / audit_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--batch", type=int, default=1000, help="events per batch")
    parser.add_argument("--sources", type=int, default=100)
    parser.add_argument(
        "--steps",
        type=int,
        default=3,
        help="the number of measurements, each with twice the events of the last",
    )
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    spark = build_session(given.master, "bench audit", memory="4g")
    with tempfile.TemporaryDirectory() as folder:
        measure(spark, Path(folder), 100 * given.batch * given.sources, given.batch, given.sources)  # warm
        sizes = [given.events >> step for step in reversed(range(given.steps))]
        sizes = [size - size % (given.batch * given.sources) for size in sizes]
        found = [
            measure(spark, Path(folder), size + given.batch * given.sources, given.batch, given.sources)
            for size in sizes
        ]
    spark.stop()
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for row in found:
        print(
            f"{row['events']:>13,} events in {row['rows']:>9,} batches: settle {row['settle_s']:6.2f} s "
            f"({row['settle_events_s'] / 1e6:6.1f} M events/s), audit {row['audit_s']:6.2f} s "
            f"({row['audit_events_s'] / 1e6:6.1f} M events/s, {row['audit_rows_s']:,} batches/s)"
        )


if __name__ == "__main__":
    main()

"""How fast the pipeline makes tables of a journal, beside Spark's own copy of the same rows, in one run.

    python -m bench.lake [--events N] [--bytes N] [--topics N] [--rounds N]

Three works take turns on the same events: the whole `pipeline` (capture, settle, events, dead letters), a run with
`nothing new`, and `copy`, Spark's own Parquet to Parquet copy of the pipeline's table `events`. The session is warm:
each work runs once before it is measured. The median of each is reported, and its ratio to the copy.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.spark import BATCH, SOURCES, noise
from reknit.batch import Batch
from reknit.spark.data_source import ReknitDataSource
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import read
from reknit.spark.pipeline.pipeline import Pipeline, PipelineSettings
from reknit.spark.runtime.session import build_session
from reknit.store.disk import DiskJournal

EPOCH: Final = "5d5c05c2a99661e2"
TIME_US: Final = 1_700_000_000_000_000


def fill(directory: Path, events: int, payload_bytes: int, topics: int) -> None:
    """Write a journal with events of 16 sources on some topics, 1,000 per batch."""
    journal, rng = DiskJournal(directory), random.Random(7)
    seqs: dict[tuple[int, int], int] = {}
    for number in range(events // BATCH):
        source, topic = number % SOURCES, number % topics
        first = seqs.get((source, topic), 1)
        name = (topic * SOURCES + source).to_bytes(16, "big")
        payloads = noise(rng, number, payload_bytes)
        batch = Batch.build(name, f"plant/{topic}", first, payloads, TIME_US + number * 1000)
        seqs[source, topic] = first + BATCH
        journal.stage(batch.data, [batch.head])
        if number % 50 == 49:
            journal.commit(sync=False)
    journal.commit(sync=False)
    journal.close()
    (directory / "epoch").write_text(f"{EPOCH}\n")


class Bench:
    """The works, each on fresh folders."""

    def __init__(self, spark: SparkSession, folder: Path, events: int) -> None:
        self.spark, self.folder, self.events = spark, folder, events
        self.url = f"file://{folder / 'journal'}#bench"
        self.copied = Lake.create(folder / "copied")

    def pipeline(self) -> None:
        """The whole pipeline, as `run --once`."""
        lake = self._lake("lake")
        figures = Pipeline(self.spark, lake, PipelineSettings((self.url,), is_once=True)).run()
        assert figures.events == self.events, figures

    def nothing_new(self) -> None:
        """A run on a lake that has everything."""
        Pipeline(self.spark, self.copied, PipelineSettings((self.url,), is_once=True)).run()

    def prepare(self) -> None:
        """Make the lake that is copied."""
        Pipeline(self.spark, self.copied, PipelineSettings((self.url,), is_once=True)).run()

    def copy(self) -> None:
        """Spark's own copy of table `events`."""
        place = self.folder / "copy"
        shutil.rmtree(place, ignore_errors=True)
        read(self.spark, self.copied, "events").write.option("compression", "zstd").parquet(str(place))

    def _lake(self, name: str) -> Lake:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return Lake.create(self.folder / name)


def measured(works: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each work; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="bytes of a payload")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reknit-bench-") as name:
        folder = Path(name)
        fill(folder / "journal", args.events, args.bytes, args.topics)
        spark = build_session("local[2]", "bench")
        spark.dataSource.register(ReknitDataSource)
        bench = Bench(spark, folder, args.events)
        bench.prepare()
        works = {"pipeline": bench.pipeline, "nothing new": bench.nothing_new, "copy": bench.copy}
        measured({"copy": bench.copy}, 1)
        found = measured(works, args.rounds)
        files = len(bench.copied.files("events"))
        spark.stop()
    print(f"{args.events:,} events of {args.bytes} B on {args.topics} topics, {files} files of events")
    for work, seconds in found.items():
        ratio = found["copy"] / seconds
        print(f"{work:12} {seconds:7.2f} s  {args.events / seconds:12,.0f} events/s  {ratio:5.2f} of a copy")


if __name__ == "__main__":
    main()

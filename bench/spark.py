"""`python -m bench.spark`: the Spark source beside Spark's own Parquet reader, on the same events in one run.

Every round does each piece of work once with either, in turn. What counts is the ratio of the two in a round; the
median over the rounds is shown. The first round warms both up and is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from reknit.batch import Batch
from reknit.config import load
from reknit.node.node import Node
from reknit.spark.schema import EVENTS
from reknit.spark.session import build_session
from reknit.store.disk import DiskJournal

TOPIC = "plant/line1/temperature"
SOURCES = 16
BATCH = 1000


@dataclass(frozen=True)
class Row:
    """One piece of work."""

    work: str
    payload_bytes: int
    events: int
    source_events_s: float
    parquet_events_s: float
    ratio: float
    goal: float | None


@dataclass(frozen=True)
class Work:
    """What is done with the events, from a frame with every column of them or with some."""

    name: str
    columns: tuple[str, ...]
    do: Callable[[DataFrame, Path], None]
    goals: dict[int, float]
    """The least ratio that is wanted, by payload size."""


def touch_all(frame: DataFrame, _: Path) -> None:
    """Hash every column of every event (a map has no hash)."""
    names = [name for name in frame.columns if name != "headers"]
    frame.select(f.sum(f.xxhash64(*names) % 1000)).collect()


def to_noop(frame: DataFrame, _: Path) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_parquet(frame: DataFrame, out: Path) -> None:
    frame.write.mode("overwrite").parquet(str(out))


WORKS = [
    Work("scan, every column", tuple(EVENTS.names), touch_all, {100: 0.75, 1024: 1.0}),
    Work("scan, payload and id", ("source", "seq", "payload"), touch_all, {}),
    Work("into Parquet", tuple(EVENTS.names), to_parquet, {100: 1.0, 1024: 1.0}),
    Work("into nothing", tuple(EVENTS.names), to_noop, {}),
    Work("two columns", ("topic", "seq"), touch_all, {}),
]


def fill(directory: Path, events: int, payload_bytes: int) -> None:
    """A journal with so many events of 16 sources, a thousand a batch."""
    journal = DiskJournal(directory)
    noise = random.Random(7).randbytes(1 << 20)
    seqs = [1] * SOURCES
    for number in range(events // BATCH):
        which = number % SOURCES
        base = (number * 7919) % (len(noise) - 2 * BATCH - payload_bytes)
        payloads = [noise[base + i : base + i + payload_bytes] for i in range(BATCH)]
        time_us = 1_700_000_000_000_000 + number * 1000
        batch = Batch.build(which.to_bytes(16, "big"), TOPIC, seqs[which], payloads, time_us)
        seqs[which] += BATCH
        journal.stage(batch.data, [batch.head])
        if number % 50 == 49:
            journal.commit(sync=False)
    journal.close()


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """A node with that journal, in a thread; gives its address."""
    overrides = {"node.name": "bench", "node.data_dir": str(directory), "node.listen": ["tcp://127.0.0.1:0"]}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    node = Node(load(environ={}, overrides=overrides))
    asyncio.run_coroutine_threadsafe(node.start(), loop).result()
    try:
        yield node.urls[0]
    finally:
        asyncio.run_coroutine_threadsafe(node.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def seconds(act: Callable[[], None]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def measure(
    spark: SparkSession,
    folder: Path,
    events: int,
    payload_bytes: int,
    rounds: int,
    journal: str,
    works: list[Work],
) -> list[Row]:
    """Every piece of work on events of one size."""
    directory, parquet, out = folder / "journal", folder / "parquet", folder / "out"
    fill(directory, events, payload_bytes)
    rows: list[Row] = []
    with serving(directory) as url:
        source = spark.read.format("reknit").option("nodes", url).option("journal", journal)
        source.load().write.parquet(str(parquet))
        for work in works:
            schema = StructType([EVENTS[name] for name in work.columns])
            ours = partial(work.do, source.schema(schema).load(), out)
            theirs = partial(work.do, spark.read.parquet(str(parquet)).select(*work.columns), out)
            pairs = [(events / seconds(ours), events / seconds(theirs)) for _ in range(rounds + 1)]
            rows.append(_row(work, payload_bytes, events, pairs[1:]))
    return rows


def _row(work: Work, payload_bytes: int, events: int, pairs: list[tuple[float, float]]) -> Row:
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    return Row(work.name, payload_bytes, events, ours, theirs, ratio, work.goals.get(payload_bytes))


def show(rows: list[Row], journal: str) -> Table:
    table = Table(
        title=f"Spark: events a second through the source ({journal}) and through Spark's Parquet reader"
    )
    for name in ("work", "payload", "source", "Parquet", "ratio", "goal"):
        table.add_column(name, justify="left" if name == "work" else "right")
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:g}x {'met' if row.ratio >= row.goal else 'missed'}"
        figures = (f"{row.source_events_s:,.0f}", f"{row.parquet_events_s:,.0f}", f"{row.ratio:.2f}x", goal)
        table.add_row(row.work, f"{row.payload_bytes} B", *figures)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer events and rounds: about a minute")
    parser.add_argument(
        "--journal", default="auto", choices=["auto", "tcp", "file"], help="how journals are read"
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--only", default="", metavar="TEXT", help="only work whose name has this in it")
    options = parser.parse_args()
    sizes = {100: 1_000_000, 1024: 200_000} if options.quick else {100: 4_000_000, 1024: 800_000}
    rounds = 3 if options.quick else 7
    works = [work for work in WORKS if options.only in work.name]
    spark = build_session(options.master, "reknit bench")
    rows: list[Row] = []
    for payload_bytes, events in sizes.items():
        folder = Path(tempfile.mkdtemp(prefix="reknit-bench-"))
        try:
            rows += measure(spark, folder, events, payload_bytes, rounds, options.journal, works)
        finally:
            shutil.rmtree(folder)
    spark.stop()
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        Console().print(show(rows, options.journal))
    return 0 if all(row.goal is None or row.ratio >= row.goal for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

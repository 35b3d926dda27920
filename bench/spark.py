"""`python -m bench.spark`: the Spark source beside Spark's own Parquet reader, on the same events in one run.

Every round does each piece of work once with both, in alternating order. The result is the ratio within a round; the
median over all rounds is shown. The first rounds warm up both and do not count. Long work gets fewer rounds, so that the
whole ends in a few minutes.

The result depends on the payloads: `noise` cannot be compressed, so Parquet reads as many bytes as the source does;
`telemetry` is JSON, which Parquet compresses to a fraction. Look at both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from reknit.server import build_node
from reknit.spark.runtime.session import build_session
from reknit.spark.source.schema import EVENTS
from reknit.store.disk import DiskJournal

TOPIC = "plant/line1/temperature"
SOURCES = 16
BATCH = 1000
SIZES = {100: 2_000_000, 1024: 400_000}
"""The number of events, by payload size."""
WARM_UP_ROUNDS = 2
ROUNDS, QUICK_ROUNDS = 9, 4
ROUNDS_MIN = 3
WORK_S_MAX = 25.0
"""After so long no further round of a piece of work starts, once it has had the minimum."""


@dataclass(frozen=True)
class Row:
    """The result of one piece of work."""

    work: str
    payload_bytes: int
    events: int
    source_events_s: float
    parquet_events_s: float
    ratio: float
    cpu_ratio: float
    """The same of the CPU time of all processes, which depends less on how busy the machine is."""
    goal: float | None


@dataclass(frozen=True)
class Work:
    """A piece of work on a frame of events, with some or all columns."""

    name: str
    columns: tuple[str, ...]
    do: Callable[[DataFrame, Path], None]
    goals: dict[int, float]
    """The lowest ratio that meets the goal, by payload size."""


def touch_all(frame: DataFrame, _: Path) -> None:
    """Hash every column of every event, except `headers`: a map cannot be hashed."""
    names = [name for name in frame.columns if name != "headers"]
    frame.select(f.sum(f.xxhash64(*names) % 1000)).collect()


def to_noop(frame: DataFrame, _: Path) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_parquet(frame: DataFrame, out: Path) -> None:
    frame.write.mode("overwrite").parquet(str(out))


WORKS = [
    Work("scan, every payload", ("payload",), touch_all, {100: 0.75, 1024: 1.0}),
    Work("scan, every column", tuple(EVENTS.names), touch_all, {100: 0.75, 1024: 1.0}),
    Work("into Parquet", tuple(EVENTS.names), to_parquet, {100: 1.0, 1024: 1.0}),
    Work("into nothing", tuple(EVENTS.names), to_noop, {}),
    Work("two columns", ("topic", "seq"), touch_all, {}),
]


def noise(rng: random.Random, number: int, size: int) -> list[bytes]:
    """Payloads that cannot be compressed."""
    block = rng.randbytes(BATCH * size)
    return [block[at : at + size] for at in range(0, BATCH * size, size)]


def telemetry(rng: random.Random, number: int, size: int) -> list[bytes]:
    """Payloads as a sensor would write them: JSON that repeats itself."""
    made: list[bytes] = []
    for index in range(BATCH):
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            parts.append(f'{{"t":{number * BATCH + index},"temp":{rng.uniform(18, 24):.3f},"ok":true}}')
        made.append("".join(parts)[:size].encode())
    return made


PAYLOADS = {"noise": noise, "telemetry": telemetry}


def fill(directory: Path, events: int, payload_bytes: int, kind: str = "noise") -> None:
    """Write a journal with events of 16 sources, 1,000 per batch."""
    journal = DiskJournal(directory)
    rng = random.Random(7)
    seqs = [1] * SOURCES
    for number in range(events // BATCH):
        which = number % SOURCES
        payloads = PAYLOADS[kind](rng, number, payload_bytes)
        time_us = 1_700_000_000_000_000 + number * 1000
        batch = Batch.build(which.to_bytes(16, "big"), TOPIC, seqs[which], payloads, time_us)
        seqs[which] += BATCH
        journal.stage(batch.data, [batch.head])
        if number % 50 == 49:
            journal.commit(sync=False)
    journal.close()


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Run a node with that journal in a thread. Yields its address."""
    overrides = {"node.name": "bench", "node.data_dir": str(directory), "node.listen": ["tcp://127.0.0.1:0"]}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    node = build_node(load(environ={}, overrides=overrides))
    asyncio.run_coroutine_threadsafe(node.start(), loop).result()
    try:
        yield node.urls[0]
    finally:
        asyncio.run_coroutine_threadsafe(node.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def cpu_s() -> float:
    """The CPU time of this process and all its descendants so far."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    total, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        total += ticks.get(process, 0)
        todo += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


Timed = tuple[float, float]


def timed(act: Callable[[], None]) -> Timed:
    """Run an action. Returns its seconds, and its CPU seconds."""
    begin, begin_cpu = time.perf_counter(), cpu_s()
    act()
    return time.perf_counter() - begin, max(0.01, cpu_s() - begin_cpu)


def in_turn(ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> list[tuple[Timed, Timed]]:
    """Run both in turn. Returns the times of every round that counts."""
    pairs: list[tuple[Timed, Timed]] = []
    for _ in range(WARM_UP_ROUNDS):
        ours()
        theirs()
    begin = time.monotonic()
    while len(pairs) < rounds and (len(pairs) < ROUNDS_MIN or time.monotonic() - begin < WORK_S_MAX):
        if len(pairs) % 2:
            second = timed(theirs)
            pairs.append((timed(ours), second))
        else:
            pairs.append((timed(ours), timed(theirs)))
    return pairs


def measure(
    spark: SparkSession,
    folder: Path,
    events: int,
    payload_bytes: int,
    rounds: int,
    journal: str,
    works: list[Work],
    kind: str,
) -> Iterator[Row]:
    """Measure every piece of work on events of one size."""
    directory, parquet, out = folder / "journal", folder / "parquet", folder / "out"
    fill(directory, events, payload_bytes, kind)
    with serving(directory) as url:
        source = spark.read.format("reknit").option("nodes", url).option("journal", journal)
        source.load().write.parquet(str(parquet))
        for work in works:
            schema = StructType([EVENTS[name] for name in work.columns])
            ours = partial(work.do, source.schema(schema).load(), out)
            theirs = partial(work.do, spark.read.parquet(str(parquet)).select(*work.columns), out)
            yield _row(work, payload_bytes, events, in_turn(ours, theirs, rounds))


def _row(work: Work, payload_bytes: int, events: int, pairs: list[tuple[Timed, Timed]]) -> Row:
    ours = statistics.median(events / one[0] for one, _ in pairs)
    theirs = statistics.median(events / other[0] for _, other in pairs)
    ratio = statistics.median(other[0] / one[0] for one, other in pairs)
    cpu_ratio = statistics.median(other[1] / one[1] for one, other in pairs)
    goal = work.goals.get(payload_bytes)
    return Row(work.name, payload_bytes, events, ours, theirs, ratio, cpu_ratio, goal)


def show(rows: list[Row], journal: str) -> Table:
    table = Table(
        title=f"Spark: events per second through the source ({journal}) and through Spark's Parquet reader"
    )
    for name in ("work", "payload", "source", "Parquet", "ratio", "CPU", "goal"):
        table.add_column(name, justify="left" if name == "work" else "right")
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:g}x {'met' if row.ratio >= row.goal else 'missed'}"
        figures = (
            f"{row.source_events_s:,.0f}",
            f"{row.parquet_events_s:,.0f}",
            f"{row.ratio:.2f}x",
            f"{row.cpu_ratio:.2f}x",
            goal,
        )
        table.add_row(row.work, f"{row.payload_bytes} B", *figures)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a minute or two")
    parser.add_argument(
        "--journal", default="auto", choices=["auto", "tcp", "file"], help="how journals are read"
    )
    parser.add_argument("--payload", default="noise", choices=list(PAYLOADS), help="what events carry")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--only", default="", metavar="TEXT", help="only work with this text in its name")
    options = parser.parse_args()
    begin = time.monotonic()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    works = [work for work in WORKS if options.only in work.name]
    spark = build_session(options.master, "reknit bench")
    rows: list[Row] = []
    for payload_bytes, events in SIZES.items():
        folder = Path(tempfile.mkdtemp(prefix="reknit-bench-"))
        try:
            how = (rounds, options.journal, works, options.payload)
            for row in measure(spark, folder, events, payload_bytes, *how):
                rows.append(row)
                told = (
                    f"{len(rows)}/{len(SIZES) * len(works)} {row.work}, {payload_bytes} B: {row.ratio:.2f}x"
                )
                print(f"{told} after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
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

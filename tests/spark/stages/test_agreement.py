"""Live and Spark agree: the same trace gives the same events, order, gaps, dead letters and ledger.

Hypothesis makes traces of publishing and settling with loss, repetition and reordering. Each goes through the live
ledger and sets of seqs, all of them together through the stages, as one Spark job per test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from reknit.batch import Batch
from reknit.ledger import Ledger
from reknit.outcome import FinalOutcome
from reknit.records import (
    OutcomeRow,
    Outcomes,
    Record,
    Skipped,
    SubscriberClosed,
    SubscriberOpened,
    apply,
)
from reknit.seqset import SeqSet
from reknit.spark.source.outcome_rows import outcome_rows
from reknit.spark.source.schema import BATCHES, OUTCOMES
from reknit.spark.stages.audit import ledger, problems, segments
from reknit.spark.stages.capture import batch_rows
from reknit.spark.stages.settle import candidates, covered, decide, settle

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TRACES = 40
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOPICS = ("plant/a", "plant/b")
SOURCES = (b"a" * 16, b"b" * 16)


@dataclass
class Trace:
    """The content of one node's journal, in order: stored ranges, and records."""

    node: str
    entries: list[tuple[str, bytes, int, int] | Record] = field(default_factory=list)


ranges = st.tuples(st.integers(1, 30), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
streams = st.tuples(st.sampled_from(TOPICS), st.sampled_from(SOURCES))
kept = st.builds(lambda stream, bounds: (*stream, *bounds), streams, ranges)
names = st.sampled_from(["ann", "bob"])
opened = st.builds(
    lambda name, pattern, since: SubscriberOpened.at(name, pattern, since, 0, 1),
    names,
    st.sampled_from(["plant/**", "plant/a", "plant/*"]),
    st.dictionaries(streams, st.integers(1, 12), max_size=2),
)
outcome = st.builds(
    lambda stream, bounds, end: OutcomeRow(
        stream[0], stream[1], bounds[0], bounds[1], end, 0, "", "", 1, 1_000_000
    ),
    streams,
    ranges,
    st.sampled_from(list(FinalOutcome)),
)
outcomes = st.builds(
    lambda name, rows: Outcomes(name, rows, 0), names, st.lists(outcome, min_size=1, max_size=3)
)
closed = st.builds(lambda name: SubscriberClosed(name, 1), names)
skipped = st.builds(
    lambda stream, bounds: Skipped(stream[0], stream[1], bounds[0], bounds[1], "", 1), streams, ranges
)
others = st.one_of(kept, kept, kept, outcomes, outcomes, opened, closed, skipped)
rest = st.lists(others, min_size=1, max_size=25)
entries = st.builds(lambda first, later: [*first, *later], st.lists(opened, max_size=2), rest)


def make_traces(strategy: st.SearchStrategy[Any], count: int = TRACES) -> list[Trace]:
    """Traces from Hypothesis, all made before one query of Spark checks them."""
    made: list[Trace] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(found: Any) -> None:
        made.append(Trace(f"n{len(made)}", found))

    collect()
    return made


def rows_of(traces: list[Trace]) -> tuple[list[Any], list[Any]]:
    """The rows of the source for these journals."""
    batches, records = [], []
    for trace in traces:
        position = 0
        for entry in trace.entries:
            if isinstance(entry, tuple):
                batches.append(batch_row(trace.node, position, *entry))
            else:
                for number, row in enumerate(outcome_rows(entry)):
                    full = {"node": trace.node, "position": position, "row": number, **row}
                    records.append(tuple(full.get(name) for name in OUTCOMES.names))
            position += 64
    return batches, records


def frame(spark: SparkSession, rows: list[Any], schema: StructType) -> DataFrame:
    """Rows as a DataFrame, without a Python worker."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema.names]
    return spark.createDataFrame(
        pa.Table.from_arrays(
            [
                pa.array(column, kind.type)
                for column, kind in zip(columns, to_arrow_schema(schema, timezone="UTC"), strict=True)
            ],
            schema.names,
        )
    )


def batch_row(node: str, position: int, topic: str, source: bytes, start: int, stop: int) -> tuple[Any, ...]:
    payloads = [b"%d" % seq for seq in range(start, stop)]
    batch = Batch.build(source, topic, start, payloads, int(NOW.timestamp() * 1e6))
    head = (node, position, topic, source, start, stop, stop - start)
    return (*head, NOW, 0, 1, 1, batch.head.length, bytes(batch.data))


def live_ledgers(traces: list[Trace]) -> Iterator[tuple[str, Ledger]]:
    for trace in traces:
        live = Ledger()
        for entry in trace.entries:
            if isinstance(entry, tuple):
                live.publish(*entry)
            else:
                apply(live, entry)
        yield trace.node, live


def test_ledgers_agree(spark: SparkSession) -> None:
    traces = make_traces(entries)
    batches, records = rows_of(traces)
    parts = segments(batch_rows(frame(spark, batches, BATCHES)), frame(spark, records, OUTCOMES)).persist()
    found = {
        tuple(row[:3]): tuple(
            row[name] for name in ("published", "accepted", "dead_lettered", "lost", "in_flight")
        )
        for row in ledger(parts).collect()
    }
    wrong = {(row["node"], row["subscriber"], row["topic"]) for row in problems(parts).collect()}
    parts.unpersist()
    expected, unbalanced = {}, set()
    for node, live in live_ledgers(traces):
        for line in live.rows():
            if line.published or line.accepted or line.dead_lettered or line.lost:
                counts = (line.published, line.accepted, line.dead_lettered, line.lost, line.in_flight)
                expected[node, line.subscriber, line.topic] = counts
                if not line.balanced:
                    unbalanced.add((node, line.subscriber, line.topic))
    assert found == expected
    assert wrong == unbalanced
    assert len(expected) > TRACES // 2
    assert unbalanced


def test_events_order_and_gaps_agree(spark: SparkSession) -> None:
    traces = make_traces(st.lists(kept, min_size=1, max_size=25))
    batches, _ = rows_of(traces)
    # A series is one topic and source on any node, so each trace gets its own topics.
    own = [(row[0], row[1], f"{row[0]}/{row[2]}", *row[3:]) for row in batches]
    decided = settle(batch_rows(frame(spark, own, BATCHES))).collect()
    for trace in traces:
        for topic in TOPICS:
            for source in SOURCES:
                seen = SeqSet()
                for entry in trace.entries:
                    if entry[:2] == (topic, source):  # type: ignore[index]
                        seen.add(*entry[2:])  # type: ignore[index]
                rows = [r for r in decided if (r["topic"], r["source"]) == (f"{trace.node}/{topic}", source)]
                rows.sort(key=lambda r: r["start"])
                pieces = [(r["start"], r["stop"]) for r in rows if r["what"] == "settled"]
                assert all(a[1] <= b[0] for a, b in pairwise(pieces))
                assert SeqSet.from_ranges(pieces) == seen
                lost = [(r["start"], r["stop"]) for r in rows if r["what"] == "lost"]
                assert lost == (seen.missing(1, seen.last + 1) if seen else [])


def test_many_small_runs_decide_as_one_big_run(spark: SparkSession) -> None:
    """Gaps in grace are held and filled; events that are given up are lost or late: each once, none forgotten."""
    traces = make_traces(st.lists(kept, min_size=4, max_size=25), 25)
    batches, _ = rows_of(traces)
    own = [(row[0], row[1], f"{row[0]}/{row[2]}", *row[3:]) for row in batches]
    coverage = held = None
    settled: dict[tuple[str, bytes], list[tuple[int, int]]] = {}
    late: dict[tuple[str, bytes], SeqSet] = {}
    lost: dict[tuple[str, bytes], SeqSet] = {}
    for step, grace_s in enumerate((3600, 3600, 0, 3600, 0)):
        now = NOW + timedelta(seconds=step)
        new = [row for at, row in enumerate(own) if at % 5 == step]
        rows = candidates(batch_rows(frame(spark, new, BATCHES)), "batches", now)
        if held is not None:
            rows = rows.unionByName(held.select(*rows.columns))
        decided = decide(rows, coverage, now, grace_s).localCheckpoint()
        coverage = covered(coverage, decided).localCheckpoint()
        held = decided.where("what = 'held'")
        for row in decided.orderBy("topic", "source", "start").collect():
            stream, bounds = (row["topic"], bytes(row["source"])), (row["start"], row["stop"])
            if row["what"] == "settled":
                before = settled.setdefault(stream, [])
                assert not before or before[-1][1] <= bounds[0], "in order across runs"
                before.append(bounds)
            elif row["what"] == "lost":
                assert lost.setdefault(stream, SeqSet()).add(*bounds)
            elif row["what"] == "late":
                assert not late.setdefault(stream, SeqSet()).overlap(*bounds), "late once"
                late[stream].add(*bounds)
    for stream in {(row[2], row[3]) for row in own}:
        seen = SeqSet.from_ranges(sorted((row[4], row[5]) for row in own if (row[2], row[3]) == stream))
        decided_seqs = SeqSet.from_ranges(settled.get(stream, []))
        came_late, given_up = late.get(stream, SeqSet()), lost.get(stream, SeqSet())
        assert decided_seqs | came_late == seen
        assert not decided_seqs & came_late
        assert came_late - given_up == SeqSet()
        assert given_up - came_late == SeqSet.from_ranges(seen.missing(1, seen.last + 1))

"""Live and Spark agree, with the live machines themselves on one side and the stages, on a lake, on the other.

Hypothesis makes traces before Spark is asked once. Those of a subscription (loss, repetition, order, what caches have)
run through `Recovery`; those of a fabric (moods of applications, cuts, crashes) run through the simulator's nodes
and clients. All of one kind go through the stages together, each under sources of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from reknit.batch import Batch
from reknit.ledger import QUEUES, Series
from reknit.outcome import FinalOutcome
from reknit.protocol.recovery.cache import MemoryCache
from reknit.protocol.recovery.recovery import Recovery
from reknit.protocol.subscribe.subscriber import DeliverBatches, Subscriber
from reknit.records import Outcomes, SubscriberClosed
from reknit.seqset import SeqSet
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import read
from reknit.spark.source.outcome_rows import outcome_rows
from reknit.spark.stages.audit.lake import audit_lake
from reknit.spark.stages.dead_letters import DEAD_LETTER_TOPIC, dead_letters_lake
from reknit.spark.stages.settle.run import settle_lake
from reknit.testing.faults import FaultPlan
from reknit.testing.nodes import SimNode
from reknit.testing.simulation import Parts, Simulation
from tests.protocol.recovery.world import ANN, BOB, TOPIC, World, batch, cache
from tests.spark.lakes import captured, captured_outcomes, events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SOURCES = (ANN, BOB)
EVENTS = 24
STEPS = 3
BYTES_MAX = 1 << 20


def own(name: str, source: bytes) -> bytes:
    """The name of a source in the lake, which holds all traces."""
    return blake2b(name.encode() + source, digest_size=16).digest()


def under(name: str, one: Batch) -> Batch:
    """A batch with its source's name in the lake."""
    columns = one.columns() or None
    head = one.head
    return Batch.build(
        own(name, head.source),
        head.topic,
        head.first,
        one.payloads(),
        head.time_us,
        ttl_ms=head.ttl_ms,
        priority=head.priority,
        type=head.type,
        columns=columns,
    )


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Values from a Hypothesis strategy."""
    made: list[Any] = []

    @settings(
        max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
    )
    @given(strategy)
    def collect(value: Any) -> None:
        made.append(value)

    collect()
    return made


# -- a subscription: what arrives, what caches have, what is released and what is lost


@dataclass
class Run:
    """The batches that arrive in each step, with caches that answer between steps, and the machine's results."""

    name: str
    steps: list[list[tuple[int, int, int]]]
    caches: dict[str, MemoryCache]
    released: dict[bytes, list[int]] = field(default_factory=lambda: {source: [] for source in SOURCES})
    lost: dict[bytes, SeqSet] = field(default_factory=lambda: {source: SeqSet() for source in SOURCES})

    def live(self) -> None:
        """Feed the steps to the machine of a subscription."""
        world = World(self.caches)
        world.recovery = Recovery(list(self.caches), after=dict.fromkeys(SOURCES, 0))
        for step in self.steps:
            world.hung = set(self.caches)
            for source, first, stop in step:
                world.arrive(batch(first, stop, source=SOURCES[source]))
            for name in self.caches:
                world.wake(name)
            world.wait(120.0)
        for row in world.out:
            self._note(row if isinstance(row, tuple) else (row,))

    def _note(self, row: tuple[Any, ...]) -> None:
        source = BOB if "b" in row else ANN
        if row[0] == "lost":
            self.lost[source].add(row[-2], row[-1])
        else:
            self.released[source].append(row[-1])


arrival = st.tuples(st.integers(0, 1), st.integers(1, EVENTS), st.integers(1, 5)).map(
    lambda row: (row[0], row[1], row[1] + row[2])
)
runs = st.tuples(
    st.lists(st.lists(arrival, max_size=10), min_size=STEPS, max_size=STEPS),
    st.lists(st.tuples(*[st.sets(st.integers(1, EVENTS + 5), max_size=12)] * 2), min_size=1, max_size=2),
)


CERTAIN = ([[(0, 2, 5), (0, 9, 11)], [(0, 6, 8), (0, 12, 14)], [(0, 11, 15)]], [({1, 5}, set[int]())])
"""Always has a recovered beginning, a recovered gap, a lost gap and late events."""


def make_run(name: str, steps: list[Any], holdings: list[tuple[set[int], set[int]]]) -> Run:
    caches = {f"cache {number}": cache() for number in range(len(holdings))}
    for held, parts in zip(caches.values(), holdings, strict=True):
        for source, seqs in zip(SOURCES, parts, strict=True):
            for seq in sorted(seqs):
                held.put(batch(seq, source=source), 0)
    return Run(name, steps, caches)


class Caches:
    """The caches of all runs, for settle."""

    def __init__(self, made: list[Run], number: int) -> None:
        name = f"cache {number}"
        self._of = {
            own(run.name, source): (run, source) for run in made for source in SOURCES if name in run.caches
        }
        self._name = name

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        if source not in self._of:
            return []
        run, theirs = self._of[source]
        found = run.caches[self._name].find(topic, theirs, start, stop, BYTES_MAX)
        return [under(run.name, one.cut(max(start, one.first), min(stop, one.stop))) for one in found]


def test_subscriptions_and_settle_release_and_lose_the_same(spark: SparkSession, tmp_path: Path) -> None:
    made = [make_run(f"run {number}", *one) for number, one in enumerate([*drawn(runs, 60), CERTAIN])]
    for run in made:
        run.live()
    lake = Lake.create(tmp_path / "lake")
    caches = [(f"cache {number}", Caches(made, number)) for number in range(2)]
    position = 0
    for step in range(STEPS):
        new = [
            under(run.name, batch(first, stop, source=SOURCES[source]))
            for run in made
            for source, first, stop in run.steps[step]
        ]
        captured(spark, lake, step, new, position=position)
        position += sum(one.head.length for one in new)
        settle_lake(spark, lake, 0.0, caches)
    found = events(spark, lake)
    lost: dict[bytes, SeqSet] = {}
    for row in read(spark, lake, "losses").collect():
        lost.setdefault(bytes(row["source"]), SeqSet()).add(row["start"], row["stop"])
    for run in made:
        for source in SOURCES:
            ours = own(run.name, source)
            assert found.get((TOPIC, ours), []) == run.released[source], run
            assert lost.get(ours, SeqSet()) == run.lost[source], run
    assert made[-1].lost[ANN]
    assert any(row["count"] for row in read(spark, lake, "recovered").collect())
    assert not read(spark, lake, "late").isEmpty()


# -- a fabric: what applications get and say, and what the ledger and the dead letters make of it

plans = st.builds(
    lambda seed, moods, attempts, is_rough: _plan(seed, moods, attempts, is_rough),
    st.integers(0, 1 << 32),
    st.tuples(*[st.sampled_from([0.0, 0.1, 0.4])] * 3),
    st.sampled_from([0, 2, 3]),
    st.booleans(),
)


def _plan(seed: int, moods: tuple[float, ...], attempts: int, is_rough: bool) -> FaultPlan:
    plan = FaultPlan.from_seed(seed) if is_rough else FaultPlan(seed=seed, publishers=2, split_share=0.2)
    fail, release, reject = moods
    return dataclasses.replace(
        plan,
        durables=2,
        retain_events=0,
        run_s=3.0,
        attempts_max=attempts,
        fail=fail,
        release=release,
        reject=reject,
    )


class Fabric:
    """A simulated fabric after it became idle."""

    def __init__(self, name: str, plan: FaultPlan) -> None:
        self.name, self.plan = name, plan
        self.handed: dict[str, dict[Series, list[int]]] = {}
        self._sim = Simulation(plan, Parts(subscriber=self._subscriber))
        verdict = self._sim.run()
        assert verdict.is_good, (plan, verdict.problems)

    @property
    def retired(self) -> set[str]:
        """Subscribers that left and asked to be forgotten, even if the node did not receive it."""
        return {program.name for program in self._sim.subscribers if program.is_retired}

    @property
    def nodes(self) -> list[SimNode]:
        return self._sim.nodes

    def called(self, node: SimNode) -> str:
        return f"{self.name} {node.name}"

    def received(self, queue: str) -> dict[Series, SeqSet]:
        """What the members of a queue received: each has a part, so there is no order among all."""
        return self._sim.witness.subscribers[queue].record.received

    def _subscriber(self, *args: Any, **options: Any) -> Subscriber:
        handed = self.handed

        class Watched(Subscriber):
            def take_effects(self) -> list[Any]:
                effects = super().take_effects()
                for effect in effects:
                    if isinstance(effect, DeliverBatches) and self.name:
                        _note(handed.setdefault(self.name, {}), effect.batches)
                return effects

        return Watched(*args, **options)


def _note(handed: dict[Series, list[int]], batches: list[Batch]) -> None:
    """The events that an application received, in order of their first delivery."""
    for one in batches:
        seqs = handed.setdefault((one.topic, one.source), [])
        seqs += [seq for seq in range(one.first, one.stop) if seq not in seqs]


def journal_batches(node: SimNode) -> Iterator[tuple[int, Batch]]:
    journal = node.journal
    position = journal.start
    while position < journal.end:
        run = journal.read(position)
        for entry in run.entries:
            yield entry.position, Batch.parse(bytes(journal.fetch(entry)))
        position = run.next_position


def journal_records(node: SimNode) -> list[tuple[int, Any]]:
    found, stop = node.journal.records(0, node.journal.end, 1 << 30)
    assert stop >= node.journal.end
    return found


def capture_all(spark: SparkSession, lake: Lake, fabrics: list[Fabric]) -> None:
    """Write all journals into the lake, as capture does."""
    from reknit.spark.source.schema import BATCHES
    from reknit.spark.stages.capture import capture_batch
    from tests.spark.lakes import batch_row, frame

    rows, records = [], []
    for fabric in fabrics:
        for node in fabric.nodes:
            name = fabric.called(node)
            rows += [batch_row(name, at, under(name, one)) for at, one in journal_batches(node)]
            for at, record in journal_records(node):
                for number, row in enumerate(outcome_rows(record)):
                    full = {"node": name, "position": at, "row": number, **row}
                    if full.get("source") is not None:
                        full["source"] = own(name, full["source"])
                    records.append(full)
    capture_batch(lake, "batches", frame(spark, rows, BATCHES), 0)
    captured_outcomes(spark, lake, 0, records)


def test_fabrics_and_stages_agree(spark: SparkSession, tmp_path: Path) -> None:
    made = [*drawn(plans, 30), *(_plan(seed, (0.4, 0.1, 0.2), 2, False) for seed in range(2))]
    fabrics = [Fabric(f"fabric {number}", plan) for number, plan in enumerate(made)]
    lake = Lake.create(tmp_path / "lake")
    capture_all(spark, lake, fabrics)
    settle_lake(spark, lake, 0.0)
    found = events(spark, lake)
    dead_letters_lake(spark, lake)
    audit = audit_lake(spark, lake, is_full=False)
    assert audit.problems == []
    _check_ledgers(fabrics, audit.rows)
    _check_events(fabrics, found)
    _check_letters(fabrics, read(spark, lake, "dead_letters").collect())
    assert read(spark, lake, "losses").isEmpty()


def _check_ledgers(fabrics: list[Fabric], rows: list[Any]) -> None:
    names = ("published", "accepted", "dead_lettered", "lost", "in_flight")
    found = {
        (row.node, row.subscriber, row.topic): tuple(getattr(row, name) for name in names) for row in rows
    }
    live = {
        (fabric.called(node), row.subscriber, row.topic): tuple(getattr(row, name) for name in names)
        for fabric in fabrics
        for node in fabric.nodes
        for row in node.journal.ledger.rows()
        if any(getattr(row, name) for name in names)
    }
    assert found == live
    assert live


def _is_calm(plan: FaultPlan) -> bool:
    """Without faults: first deliveries are in order."""
    faults = (plan.cut_rate, plan.partition_rate, plan.node_crash_rate, plan.subscriber_crash_rate)
    return not any((*faults, plan.ttl_ms, plan.lease_s, plan.pause_rate))


def _check_events(fabrics: list[Fabric], found: dict[Series, list[int]]) -> None:
    """Published events are in the tables in order; without faults, applications received them in the same order."""
    compared = 0
    for fabric in fabrics:
        for node in fabric.nodes:
            for (topic, source), seqs in node.journal.ledger.published.items():
                in_table = found[topic, own(fabric.called(node), source)]
                assert in_table == [seq for start, stop in seqs.ranges() for seq in range(start, stop)]
                compared += _check_handed(fabric, node, (topic, source), in_table)
    assert compared > 20


def _check_handed(fabric: Fabric, node: SimNode, stream: Series, in_table: list[int]) -> int:
    """Compare with every durable subscriber of a series; returns how many events were compared in order."""
    compared, ledger = 0, node.journal.ledger
    for account in ledger.accounts.values():
        if account.name in fabric.retired or not account.pattern.matches(stream[0]):
            continue
        wanted = account.owed(stream, ledger.published[stream])
        owed = [seq for seq in in_table if seq in wanted]
        # An event that expires on the way is a dead letter that was never delivered.
        dead = account.ends.get(stream, {}).get(FinalOutcome.DEAD_LETTERED, SeqSet())
        if account.name.startswith(QUEUES):
            received = fabric.received(account.name).get(stream, SeqSet())
            assert all(seq in received or seq in dead for seq in owed), fabric.plan
            continue
        handed = fabric.handed.get(account.name, {}).get(stream, [])
        if _is_calm(fabric.plan):
            assert handed == owed, fabric.plan
            compared += len(owed)
        else:
            assert {seq for seq in owed if seq not in dead} <= set(handed), fabric.plan
    return compared


def _check_letters(fabrics: list[Fabric], rows: list[Any]) -> None:
    """Each dead-lettered event has a dead letter with the same reason, for subscribers that were never forgotten."""
    found = sorted(
        (
            bytes(row["letter_source"]),
            row["subscriber"],
            row["topic"],
            bytes(row["source"]),
            row["seq"],
            row["reason"],
        )
        for row in rows
    )
    live: list[tuple[Any, ...]] = []
    for fabric in fabrics:
        for node in fabric.nodes:
            writer = own(fabric.called(node), node.core.dead_letters.source)
            forgotten = {r.name for _, r in journal_records(node) if isinstance(r, SubscriberClosed)}
            found = [row for row in found if row[0] != writer or (row[1] and row[1] not in forgotten)]
            for _, record in journal_records(node):
                if isinstance(record, Outcomes) and record.name not in forgotten:
                    live += _ended_dead(writer, record)
    assert found == sorted(live)
    assert len({row[-1] for row in live}) > 1


def _ended_dead(writer: bytes, record: Outcomes) -> Iterator[tuple[Any, ...]]:
    for row in record.rows:
        if row.end == FinalOutcome.DEAD_LETTERED and row.topic != DEAD_LETTER_TOPIC:
            for seq in range(row.start, row.stop):
                yield (writer, record.name, row.topic, row.source, seq, row.reason)

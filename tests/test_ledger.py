"""The ledger adds up, in steps that leave room for others, and its running totals are those of its events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.ledger import Ledger, LedgerRow
from reknit.ledger import ledger as ledgers
from reknit.ledger.rows import RowSum
from reknit.outcome import FinalOutcome
from reknit.seqset import SeqSet
from reknit.topic import Pattern

SOURCES = [bytes([number]) * 16 for number in range(1, 30)]


def many(sources: int, topics: int = 3) -> Ledger:
    """Sources with ten events each, of which `audit` has accepted seven."""
    ledger = Ledger()
    ledger.open("audit", Pattern("plant/**"), {}, 0)
    for number in range(sources):
        source = number.to_bytes(16, "big")
        topic = f"plant/{number % topics}"
        ledger.publish(topic, source, 1, 11)
        ledger.settle("audit", topic, source, 1, 8, FinalOutcome.ACCEPTED)
    return ledger


def walk(ledger: Ledger, **filters: object) -> Iterator[LedgerRow | None]:
    return ledger.walk(lambda name: None, **filters)  # type: ignore[arg-type]


def test_no_step_adds_up_more_than_its_share_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sources there are, the node goes on after each step."""
    steps = [0]

    class CountedSum(RowSum):
        def add(self, *args: object) -> None:
            steps[-1] += 1
            super().add(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ledgers, "RowSum", CountedSum)
    rows = []
    for row in walk(many(10_000, topics=2)):
        if row is None:
            steps.append(0)
        else:
            rows.append(row)
    assert sum(steps) == 10_000
    assert max(steps) <= 2 * ledgers.STEP_SERIES, "the end of one topic and the start of the next"
    assert [(row.topic, row.published, row.accepted, row.in_flight) for row in rows] == [
        ("plant/0", 50_000, 35_000, 15_000),
        ("plant/1", 50_000, 35_000, 15_000),
    ]


def test_a_ledger_that_changes_during_a_walk_still_balances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "STEP_SERIES", 5)
    monkeypatch.setattr(ledgers, "GROUP_SERIES", 5)
    ledger, rows, step = many(60), [], 0
    for row in walk(ledger):
        step += 1
        source = (step % 60).to_bytes(16, "big")
        topic = f"plant/{step % 60 % 3}"
        ledger.publish(topic, source, 11, 12 + step)
        ledger.settle("audit", topic, source, 8, 9 + step, FinalOutcome.ACCEPTED)
        ledger.publish("plant/new", step.to_bytes(16, "little"), 1, 2)
        rows += [row] if row is not None else []
    assert step > 60 // 5
    assert all(row.balanced for row in rows)


def test_an_account_that_is_closed_during_a_walk_is_left_out() -> None:
    ledger = many(3)
    ledger.open("late", Pattern("plant/**"), {}, 0)
    seen = []
    for row in walk(ledger):
        ledger.close("late")
        seen += [row.subscriber] if row is not None else []
    assert set(seen) == {"audit"}


def test_a_walk_can_be_filtered_and_resumed() -> None:
    ledger = many(30)
    every = [row for row in walk(ledger) if row is not None]
    assert [row.topic for row in every] == ["plant/0", "plant/1", "plant/2"]
    some = [row for row in walk(ledger, pattern=Pattern("plant/1")) if row is not None]
    assert some == every[1:2]
    rest = [row for row in walk(ledger, after=("audit", "plant/0")) if row is not None]
    assert rest == every[1:]


def test_an_event_that_nobody_has_is_a_problem_also_behind_a_quick_path() -> None:
    ledger = many(2, topics=1)
    held = {SOURCE: SeqSet.from_ranges([(8, 11)]) for SOURCE in (bytes(15) + b"\x00",)}
    [row] = [
        row
        for row in ledger.walk(lambda name: lambda series: held.get(series[1], SeqSet()))
        if row is not None
    ]
    assert not row.balanced
    assert row.problems == (f"{(1).to_bytes(16, 'big').hex()} [8, 11) has not ended and is not in flight",)


def test_an_outcome_of_an_event_that_was_never_published_is_a_problem() -> None:
    ledger = many(3)
    ledger.settle("audit", "plant/0", SOURCES[0], 1, 3, FinalOutcome.ACCEPTED)
    assert [row.topic for row in ledger.rows() if not row.balanced] == ["plant/0"]


ranges = st.tuples(st.sampled_from("ab"), st.sampled_from(SOURCES[:3]), st.integers(1, 30), st.integers(1, 8))


@given(st.lists(ranges, max_size=40))
def test_running_totals_are_those_of_the_published_events(
    published: list[tuple[str, bytes, int, int]],
) -> None:
    ledger = Ledger()
    for topic, source, start, count in published:
        ledger.publish(topic, source, start, start + count)
    for topic, totals in ledger.topics.items():
        several = [seqs for series, seqs in ledger.published.items() if series[0] == topic]
        assert totals.events == sum(seqs.count for seqs in several)
        assert totals.sources == len(several)
        assert totals.gaps == sum(seqs.range_count - 1 for seqs in several)
    assert set(ledger.topics) == {topic for topic, _ in ledger.published}

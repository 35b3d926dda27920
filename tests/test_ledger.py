"""The ledger adds up, in steps that leave room for others, and its running totals are those of its events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.ledger import Ledger, LedgerRow
from reknit.ledger import walk as walks
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

    monkeypatch.setattr(walks, "RowSum", CountedSum)
    rows = []
    for row in walk(many(10_000, topics=2)):
        if row is None:
            steps.append(0)
        else:
            rows.append(row)
    assert sum(steps) == 10_000
    assert max(steps) <= 2 * walks.STEP_SERIES, "the end of one topic and the start of the next"
    assert [(row.topic, row.published, row.accepted, row.in_flight) for row in rows] == [
        ("plant/0", 50_000, 35_000, 15_000),
        ("plant/1", 50_000, 35_000, 15_000),
    ]


def test_no_step_has_more_than_its_share_of_short_topics() -> None:
    """A topic with one source costs little, and a node has many."""
    ledger, steps, rows = many(5_000, topics=5_000), [0], 0
    for number in range(3):
        ledger.open(f"other/{number}", Pattern(f"plant/{number}"), {}, 0)
    for row in walk(ledger):
        if row is None:
            steps.append(0)
        else:
            rows += 1
            steps[-1] += 1
    assert rows == 5_003
    assert max(steps) <= walks.STEP_SERIES


def test_a_ledger_that_changes_during_a_walk_still_balances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "STEP_SERIES", 5)
    monkeypatch.setattr(walks, "STEP_TOPICS", 5)
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


TOPICS = ("a", "a/b", "a/b/c", "ab", "b/c")
PATTERNS = ("a/**", "a/*", "**", "a$*", "b/c", "a/b", "@x/**")

ranges = st.tuples(st.sampled_from("ab"), st.sampled_from(SOURCES[:3]), st.integers(1, 30), st.integers(1, 8))
steps = st.tuples(
    st.sampled_from(
        ("publish", "publish", "skip", *(f"{one}:{end.name}" for one in "xyz" for end in FinalOutcome))
    ),
    st.sampled_from(TOPICS),
    st.sampled_from(SOURCES[:3]),
    st.integers(1, 12),
    st.integers(1, 5),
)


def by_definition(ledger: Ledger) -> list[LedgerRow]:
    """Every row of a ledger, event by event."""
    rows = []
    everywhere = {*ledger.published, *ledger.skipped}
    for name, account in sorted(ledger.accounts.items()):
        owed = {series for series in everywhere if account.pattern.matches(series[0])} | set(account.ends)
        for topic in sorted({topic for topic, _ in owed}):
            counts, published, in_flight, problems = dict.fromkeys(FinalOutcome, 0), 0, 0, []
            for series in sorted(one for one in owed if one[0] == topic):
                exist = {seq for bounds in ledger.existing(series).ranges() for seq in range(*bounds)}
                exist -= set(range(account.since.get(series, 1)))
                ended = set()
                for end, seqs in account.ends.get(series, {}).items():
                    counts[end] += seqs.count
                    ended |= {seq for bounds in seqs.ranges() for seq in range(*bounds)}
                published, in_flight = published + len(exist), in_flight + len(exist - ended)
                wrong = SeqSet.from_ranges((seq, seq + 1) for seq in sorted(ended - exist)).ranges()
                problems += [
                    f"{series[1].hex()} [{low}, {high}) ended but was never published" for low, high in wrong
                ]
            accepted, dead, lost = (counts[end] for end in FinalOutcome)
            columns = (published, accepted, dead, lost, in_flight)
            rows.append(LedgerRow(name, topic, *columns, tuple(sorted(problems))))
    return rows


@given(st.lists(steps, max_size=60), st.tuples(*[st.sampled_from(PATTERNS)] * 3), st.sampled_from(PATTERNS))
def test_every_row_is_that_of_its_events(
    changes: list[tuple[str, str, bytes, int, int]], patterns: tuple[str, ...], wanted: str
) -> None:
    """Also of events that ended although nobody published them, or outside of a subscriber's pattern."""
    ledger = Ledger()
    for name, pattern in zip("xyz", patterns, strict=True):
        ledger.open(name, Pattern(pattern), {("a/b", SOURCES[0]): 4} if name == "y" else {}, 0)
    for what, topic, source, start, count in changes:
        if what == "publish":
            ledger.publish(topic, source, start, start + count)
        elif what == "skip":
            ledger.skip(topic, source, start, start + count)
        else:
            name, _, end = what.partition(":")
            ledger.settle(name, topic, source, start, start + count, FinalOutcome[end])
    expected = by_definition(ledger)
    assert ledger.rows() == expected
    filtered = [row for row in walk(ledger, pattern=Pattern(wanted)) if row is not None]
    assert filtered == [row for row in expected if Pattern(wanted).matches(row.topic)]
    for at, row in enumerate(expected):
        rest = walk(ledger, after=(row.subscriber, row.topic))
        assert [one for one in rest if one is not None] == expected[at + 1 :]


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

"""Holders of past events: an answer never covers an event that is held and not in it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.node.core.keepers import JournalKeeper, Keepers
from reknit.protocol.recovery.cache import EventHolder, MemoryCache, answer
from reknit.seqset import SeqSet
from reknit.store.memory import MemoryJournal
from reknit.topic import Pattern
from reknit.wire.recovery import Recover

TOPIC, SOURCE, LAST = "plant/a", b"s" * 16, 30

Cuts = list[tuple[int, int]]


@st.composite
def cuts(draw: st.DrawFn) -> Cuts:
    """Some of the events 1 to `LAST`, in batches."""
    found: Cuts = []
    at = 1
    while at <= LAST:
        stop = min(at + draw(st.integers(1, 8)), LAST + 1)
        if draw(st.booleans()):
            found.append((at, stop))
        at = stop
    return found


def batches(held: Cuts, size: int) -> list[Batch]:
    return [Batch.build(SOURCE, TOPIC, low, [b"x" * size] * (high - low), 1) for low, high in held]


def journal(held: Sequence[Batch]) -> EventHolder:
    made = MemoryJournal()
    for batch in held:
        made.stage(batch.data, [batch.head])
    made.commit()
    return JournalKeeper(made, lambda: 0)


def cache(held: Sequence[Batch]) -> EventHolder:
    made = MemoryCache(Pattern("**"))
    for batch in held:
        made.put(batch, 1)
    return made


def check(holder: EventHolder, held: Sequence[Batch], ranges: Cuts, bytes_max: int) -> None:
    found, covered = answer(holder, Recover(1, TOPIC, SOURCE, ranges, bytes_max))
    have = SeqSet.from_ranges((batch.first, batch.stop) for batch in held)
    said = SeqSet.from_ranges((batch.first, batch.stop) for batch in found)
    owed = [part for start, stop in covered for part in have.overlap(start, stop)]
    missing = [part for start, stop in owed for part in said.missing(start, stop)]
    assert not missing, f"{missing} is held and covered, and not in the answer"
    assert found or not any(have.overlap(*one) for one in ranges), "something comes, whatever the limit"


ranges = st.tuples(st.integers(1, LAST), st.integers(1, 12)).map(lambda one: [(one[0], one[0] + one[1])])
limits = st.integers(1, 2_000)


@given(cuts(), ranges, limits, st.integers(0, 90))
def test_an_answer_of_a_journal_has_all_that_it_covers(
    held: Cuts, asked: Cuts, bytes_max: int, size: int
) -> None:
    """Of a long batch one event was missing: the answer ended with it, and said that it covers the batches behind it."""
    made = batches(held, size)
    check(journal(made), made, asked, bytes_max)


@given(cuts(), ranges, limits, st.integers(0, 90))
def test_an_answer_of_a_cache_has_all_that_it_covers(
    held: Cuts, asked: Cuts, bytes_max: int, size: int
) -> None:
    made = batches(held, size)
    check(cache(made), made, asked, bytes_max)


@given(cuts(), cuts(), cuts(), ranges, limits, st.integers(0, 90))
def test_an_answer_of_several_holders_has_all_that_it_covers(
    first: Cuts, second: Cuts, third: Cuts, asked: Cuts, bytes_max: int, size: int
) -> None:
    made = [batches(held, size) for held in (first, second, third)]
    holder = Keepers([journal(made[0]), cache(made[1]), cache(made[2])])
    check(holder, [batch for held in made for batch in held], asked, bytes_max)

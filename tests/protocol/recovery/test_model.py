"""Recovery against a plain model: any loss, duplication and order, any caches that hold any part of the events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.search import SearchSettings
from tests.protocol.recovery.world import ANN, BOB, World, batch, cache

EVENTS = 24
SOURCES = (ANN, BOB)

seqs = st.sets(st.integers(1, EVENTS))
subset = st.tuples(seqs, seqs)


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(source, first, stop) as they reach the subscriber: lost, repeated, and out of order a little or a lot."""
    order: list[tuple[int, int, int]] = []
    for source in range(len(SOURCES)):
        firsts = draw(st.lists(st.integers(1, EVENTS), max_size=12))
        for first in firsts if draw(st.booleans()) else sorted(firsts):
            order += [(source, first, min(EVENTS + 1, first + draw(st.integers(1, 4))))]
    return draw(st.permutations(order)) if draw(st.booleans()) else order


@given(arrivals(), st.lists(subset, max_size=3), st.integers(100, 2_000), st.booleans(), st.data())
def test_events_that_some_cache_has_are_delivered_in_order_and_exactly_the_rest_is_lost(
    order: list[tuple[int, int, int]],
    holdings: list[tuple[set[int], set[int]]],
    bytes_max: int,
    is_tight: bool,
    data: st.DataObject,
) -> None:
    if is_tight and holdings:  # a node that delivers an event caches it too, so dropped events come again
        for source, first, stop in order:
            holdings[-1][source].update(range(first, stop))
    caches = {f"cache {number}": cache() for number in range(len(holdings))}
    for held, parts in zip(caches.values(), holdings, strict=True):
        for number, part in enumerate(parts):
            for seq in sorted(part):
                held.put(batch(seq, source=SOURCES[number]), 0)
    holding = HoldLimits(events_max=5 if is_tight and holdings else 1_000)
    world = World(caches, asking=SearchSettings(bytes_max=bytes_max), holding=holding)
    began: dict[int, int] = {}
    for source, first, stop in order:
        began.setdefault(source, first)
        world.arrive(batch(first, stop, source=SOURCES[source]))
        if data.draw(st.booleans()):
            world.wait(0.1)
    for source, begin in began.items():
        world.beat(EVENTS, SOURCES[source])
        world.wait(60.0)
        name = () if source == 0 else ("b",)
        told = [row for row in world.out if _is_of(row, name)]
        expected: list[object] = []
        held_somewhere: set[int] = set().union(*(parts[source] for parts in holdings))
        for seq in range(begin, EVENTS + 1):
            if seq in held_somewhere or seq in _in_time(order, source):
                expected.append((*name, seq) if name else seq)
            else:
                expected.append(("lost", *name, seq, seq + 1))
        assert _singly(told, name) == expected
        assert len([row for row in told if isinstance(row, tuple) and row[0] == "lost"]) == _runs(expected)


def _in_time(order: list[tuple[int, int, int]], source: int) -> set[int]:
    """The events that arrive before their loss is certain: at once here, as every cache answers at once."""
    known = stop_of = 0
    got: set[int] = set()
    for owner, first, stop in order:
        if owner != source:
            continue
        if not known:
            known = stop_of = first
        got |= set(range(max(first, stop_of), stop))
        stop_of = max(stop_of, stop)
    return got


def _is_of(row: object, name: tuple[str, ...]) -> bool:
    if isinstance(row, int):
        return not name
    assert isinstance(row, tuple)
    return ("b" in row) == bool(name)


def _singly(rows: list[object], name: tuple[str, ...]) -> list[object]:
    """All losses, event by event."""
    out: list[object] = []
    for row in rows:
        if isinstance(row, tuple) and row[0] == "lost":
            out += [("lost", *name, seq, seq + 1) for seq in range(row[-2], row[-1])]
        else:
            out.append(row)
    return out


def _runs(rows: list[object]) -> int:
    """How many runs of losses there are: no more reports than that."""
    lost = [isinstance(row, tuple) and row[0] == "lost" for row in rows]
    return sum(now and not before for before, now in zip([False, *lost], lost, strict=False))

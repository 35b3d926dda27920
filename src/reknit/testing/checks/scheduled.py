"""The check of events that are published later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from reknit.ledger import Series
from reknit.testing.checks.promise import promise


class SeenSchedules(Protocol):
    """What was seen from outside: see `ScheduledEvents`."""

    due_us: dict[bytes, int]
    published_us: dict[tuple[str, bytes], list[int]]
    redriven: set[tuple[str, bytes]]
    asked: set[tuple[str, str]]
    told: set[tuple[str, str]]


@promise("A scheduled event is published once and not before its time, unless it was cancelled.")
def scheduled_events_are_published_once(
    node: str, seen: SeenSchedules, confirmed: Iterable[tuple[Series, int, bytes]]
) -> Iterator[str]:
    """`confirmed` are the scheduled events that the node acknowledged."""
    for (topic, source), seq, payload in confirmed:
        name, times_us = f"{topic} {source.hex()}:{seq}", seen.published_us.get((node, payload), [])
        key = (node, f"{source.hex()}:{seq}")
        if len(times_us) > 1 and (node, payload) not in seen.redriven:
            yield f"{name} was published {len(times_us)} times"
        if times_us and key in seen.told:
            yield f"{name} was cancelled, and published"
        if not times_us and key not in seen.asked:
            yield f"{name} was never published"
        if times_us and times_us[0] < seen.due_us[payload]:
            yield f"{name} was published {(seen.due_us[payload] - times_us[0]) / 1e6:.3f} s too early"

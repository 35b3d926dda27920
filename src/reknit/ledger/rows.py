"""A line of the ledger, and how the outcomes of its series add up to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from reknit.ledger.account import Series
from reknit.outcome import FinalOutcome
from reknit.seqset import SeqSet

__all__ = ["NOTHING", "Held", "LedgerRow", "RowSum"]

Held = Callable[[Series], SeqSet]
"""The events of a series that a subscriber has in flight."""
NOTHING: Final = SeqSet()
_ENDS: Final = tuple(FinalOutcome)


class LedgerRow(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    subscriber: str
    topic: str
    published: int
    accepted: int
    dead_lettered: int
    lost: int
    in_flight: int
    problems: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        ended = self.accepted + self.dead_lettered + self.lost
        return not self.problems and self.published == ended + self.in_flight


class RowSum:
    """Adds up the series of one subscriber and topic.

    >>> row = RowSum("audit", "plant/a")
    >>> published, accepted = SeqSet.from_ranges([(1, 11)]), SeqSet.from_ranges([(1, 8)])
    >>> row.add(("plant/a", b"s"), 1, published, NOTHING, {FinalOutcome.ACCEPTED: accepted}, None)
    >>> row.row().in_flight
    3
    """

    def __init__(self, subscriber: str, topic: str) -> None:
        self._subscriber = subscriber
        self._topic = topic
        self._published = self._in_flight = 0
        self._counts = dict.fromkeys(_ENDS, 0)
        self._problems: list[str] = []

    def add(
        self,
        series: Series,
        since: int,
        published: SeqSet,
        skipped: SeqSet,
        ends: Mapping[FinalOutcome, SeqSet],
        held: Held | None,
    ) -> None:
        """A series: owed from `since` on, stored here or skipped, ended, and (where that is known) in flight.

        `held` is called only if some of its events are in flight.
        """
        for end, seqs in ends.items():
            self._counts[end] += seqs.count
        if self._add_plain(since, published, skipped, ends, held is not None):
            return
        owed = published.union(skipped) if skipped else published.copy()
        owed.discard(0, since)
        ended = SeqSet()
        for seqs in ends.values():
            ended = ended.union(seqs)
        waiting = owed.difference(ended)
        self._published += owed.count
        self._in_flight += waiting.count
        self._note(series[1], "ended but was never published", ended.difference(owed))
        if held is not None and waiting:
            silent = waiting.difference(held(series)).difference(skipped)
            self._note(series[1], "has not ended and is not in flight", silent)

    def add_waiting(self, count: int) -> None:
        """A series of which everything is owed and nothing has ended."""
        self._published += count
        self._in_flight += count

    def _add_plain(
        self,
        since: int,
        published: SeqSet,
        skipped: SeqSet,
        ends: Mapping[FinalOutcome, SeqSet],
        is_held_known: bool,
    ) -> bool:
        """Most series are owed whole, and ended in at most one way: those need no new sets. False for others."""
        if skipped or len(ends) > 1 or since > published.first:
            return False
        ended = next(iter(ends.values()), NOTHING)
        if ended != published and (
            is_held_known or not all(published.covers(*bounds) for bounds in ended.ranges())
        ):
            return False
        self._published += published.count
        self._in_flight += published.count - ended.count
        return True

    def _note(self, source: bytes, text: str, seqs: SeqSet) -> None:
        self._problems += [f"{source.hex()} {span(bounds)} {text}" for bounds in seqs.ranges()]

    def row(self) -> LedgerRow:
        """The line."""
        counts = self._counts
        ends = (counts[FinalOutcome.ACCEPTED], counts[FinalOutcome.DEAD_LETTERED], counts[FinalOutcome.LOST])
        problems = tuple(sorted(self._problems))
        return LedgerRow(self._subscriber, self._topic, self._published, *ends, self._in_flight, problems)


def span(bounds: tuple[int, int]) -> str:
    """A range as text.

    >>> span((3, 7))
    '[3, 7)'
    """
    return f"[{bounds[0]}, {bounds[1]})"

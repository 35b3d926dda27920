"""Which events that wait in the journal were handled: published again, or dropped. These are dead letters, and events
that are scheduled to be published later."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from reknit.seqset import SeqSet


class Redriven(msgspec.Struct, frozen=True, array_like=True):
    """Dead letters `ranges` were to be published again as events `[first, stop)` of a series."""

    ranges: list[tuple[int, int]]
    topic: str
    source: bytes
    first: int
    stop: int


@dataclass(slots=True)
class HandledLetters:
    """Which dead letters or scheduled events of one source were handled, by their seqs. All others wait."""

    redriven: SeqSet = field(default_factory=SeqSet)
    dropped: SeqSet = field(default_factory=SeqSet)
    last: Redriven | None = None
    """The last redrive: a crash may have happened between its record and its events."""

    def waiting(self, published: SeqSet) -> SeqSet:
        """The dead letters that were neither redriven nor dropped."""
        return published.difference(self.redriven).difference(self.dropped)

    def redrive(self, redriven: Redriven) -> None:
        """Dead letters are published again."""
        for start, stop in redriven.ranges:
            self.redriven.add(start, stop)
        self.last = redriven

    def put_back(self, start: int, stop: int) -> None:
        """Dead letters `[start, stop)` wait again: the events of their redrive were never stored."""
        self.redriven.discard(start, stop)
        self.last = None

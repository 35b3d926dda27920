"""What the last commit added to the journal: read once, for everybody who follows the journal."""

from __future__ import annotations

from typing import Final

from reknit.entries import Run
from reknit.store.journal import Journal

GROW_BYTES: Final = 4 << 20
"""How much of a commit is read at a time."""
CATCH_UP_BYTES: Final = 1 << 20
"""How much a follower that is behind reads at a time."""


class JournalTail:
    """The one reader of new events. A follower that is behind reads the journal on its own, until it has caught up."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._runs: dict[int, Run] = {}
        """By the position that they are read from. Their first batch may be behind it, after records."""
        self.end = journal.end
        """Everything before this position was read here, and may be passed on. A commit that just ended in its thread
        may have moved the journal's own end further."""

    @property
    def start(self) -> int:
        """The first position held."""
        return self._journal.start

    def position_at(self, time_us: int) -> int:
        """Where to start reading to get everything stored at or after a time; maybe a little early, never late."""
        return self._journal.position_at(time_us)

    def advance(self, end: int) -> list[Run]:
        """The journal is durable up to `end`: read what is new."""
        self._runs = {}
        while self.end < end:
            run = self._runs[self.end] = self._journal.read(self.end, end, GROW_BYTES)
            self.end = run.next_position
        return list(self._runs.values())

    def read(self, position: int) -> Run:
        """Durable batches from a position on, at most up to `end`. Raises `Gone` where retention removed them."""
        found = self._runs.get(position)
        if found is not None:
            return found
        return self._journal.read(position, self.end, CATCH_UP_BYTES)

    def release(self) -> None:
        """Everybody was told of the last commit: its bytes need not stay in memory."""
        self._runs = {}

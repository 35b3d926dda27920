"""A second cache beside the journals: it holds events that retention removed, answers late, or never."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from reknit.ledger import Series
from reknit.protocol.recovery.cache import MemoryCache, answer
from reknit.protocol.recovery.cache_requests import CacheRequester
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal
from reknit.testing.checks.journals import batches_of
from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.topic import Pattern
from reknit.wire.recovery import Recover

ARCHIVE = "archive"
"""Its name among the caches of a subscriber."""


class Archive:
    """The archive of one simulation. The plan says how much it holds, and how late it answers."""

    def __init__(self, clock: Clock, plan: FaultPlan, rng: Random) -> None:
        self._clock = clock
        self._plan = plan
        self._rng = rng
        self._cache = MemoryCache(Pattern("**"))

    def fill(self, journal: Journal) -> None:
        """Hold what a journal holds, before retention removes it. A part is two batches of three."""
        kind = self._plan.archive
        if kind in ("whole", "part"):
            for batch in batches_of(journal):
                if kind == "whole" or batch.first % 3:
                    self._cache.put(batch, self._clock.now_us())

    def ask(
        self,
        requester: CacheRequester,
        after: Callable[[float, Callable[[], None]], None],
        number: int,
        series: Series,
        ranges: list[Range],
        bytes_max: int,
    ) -> None:
        """Answer a subscriber a little later, by its own timer `after`; it may not wait for that long."""
        if self._plan.archive == "silent":
            return
        request = Recover(number, *series, ranges, bytes_max)

        def respond() -> None:
            batches, covered = answer(self._cache, request)
            if batches:  # in several messages: what it does not hold comes first
                held = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
                denied = [part for bounds in covered for part in held.missing(*bounds)]
                requester.answered(ARCHIVE, number, denied, False)
                requester.found(ARCHIVE, batches)
            requester.answered(ARCHIVE, number, covered, True)

        after(self._rng.uniform(0.0, self._plan.archive_s_max), respond)

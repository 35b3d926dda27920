"""When events were lost. The ledger does not keep that: it is read from the journal's records, once somebody asks."""

from __future__ import annotations

import asyncio
from typing import Final

from reknit.ledger import Series
from reknit.outcome import FinalOutcome
from reknit.records import Outcomes
from reknit.store.journal import Readable

PART_BYTES: Final = 1 << 20
LOOK_BYTES_MAX: Final = 256 << 20
"""How much of the journal one answer looks through; the next one goes on there."""
KNOWN_MAX: Final = 20_000
"""So many ranges have a time, the newest."""


class LossTimes:
    """The times of the losses of one journal."""

    def __init__(self, journal: Readable) -> None:
        self._journal = journal
        self._position = 0
        self._known: dict[tuple[str, Series, int], tuple[int, int]] = {}
        """By subscriber, series and first seq: the seq after the last, and the time."""
        self._reading = asyncio.Lock()

    async def catch_up(self) -> None:
        """Read what was recorded since the last time. The node goes on with its work meanwhile."""
        async with self._reading:
            journal = self._journal
            self._position = max(self._position, journal.start)
            stop = min(journal.end, self._position + LOOK_BYTES_MAX)
            while self._position < stop:
                found, after = journal.records(self._position, stop, PART_BYTES)
                for _, record in found:
                    if isinstance(record, Outcomes):
                        self._note(record)
                if after <= self._position:
                    return
                self._position = after
                await asyncio.sleep(0)

    def _note(self, record: Outcomes) -> None:
        for row in record.rows:
            if row.end is FinalOutcome.LOST:
                self._known[(record.name, (row.topic, row.source), row.start)] = row.stop, row.time_us
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def of(self, name: str, series: Series, start: int, stop: int) -> int:
        """When a subscriber lost `[start, stop)`, or the first of it; 0 if that is not known."""
        found = self._known.get((name, series, start))
        if found is not None:
            return found[1]
        times = [
            time_us
            for (who, which, low), (high, time_us) in self._known.items()
            if who == name and which == series and low < stop and start < high
        ]
        return min(times, default=0)

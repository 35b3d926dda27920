"""The last minutes of the ledger, in memory: how much ended in a second and how much was in flight, for sparklines.

A bounded ring and no store of statistics: what is older is gone, and so is everything when the node stops.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from reknit import environment
from reknit.node.admin.ledger_reader import LedgerSums

PERIOD_S: Final = 5.0
SAMPLES: Final = 60
RINGS_MAX: Final = 4_000
"""So many rows of the ledger have a history, those that were there first."""
REST: Final = 100
"""A sample is taken at most every so many times as long as it takes: a hundredth of the node's time."""
Key = tuple[str, str]
"""A subscriber and a topic. The sums of a subscriber have no topic, and those of all have no subscriber either."""
TOTAL: Final[Key] = ("", "")


class Ring:
    """The history of one row.

    >>> ring = Ring()
    >>> ring.note(ended=10, in_flight=4, trouble=0, passed_s=0.0, now=1.0)
    >>> ring.note(ended=30, in_flight=2, trouble=1, passed_s=5.0, now=6.0)
    >>> list(ring.rates), list(ring.waiting), ring.changed_at
    ([4.0], [4.0, 2.0], 6.0)
    """

    __slots__ = ("changed_at", "ended", "rates", "trouble", "waiting")

    def __init__(self) -> None:
        self.rates = array("f")
        """Events that ended in a second."""
        self.waiting = array("f")
        """Events in flight."""
        self.ended = self.trouble = -1
        self.changed_at = float("-inf")
        """When events were lost or dead-lettered last."""

    def note(self, *, ended: int, in_flight: int, trouble: int, passed_s: float, now: float) -> None:
        """Add a sample. `trouble` counts events that were lost or dead-lettered."""
        if self.ended >= 0 and passed_s > 0:
            _push(self.rates, max(0, ended - self.ended) / passed_s)
        if 0 <= self.trouble < trouble:
            self.changed_at = now
        _push(self.waiting, float(in_flight))
        self.ended, self.trouble = ended, trouble


def _push(values: array[float], value: float) -> None:
    values.append(value)
    if len(values) > SAMPLES:
        del values[0]


class FigureHistory:
    """Samples one node's ledger while it runs."""

    def __init__(self, sums: Callable[[], Awaitable[LedgerSums]]) -> None:
        self._sums = sums
        self._rings: dict[Key, Ring] = {}
        self._noted_at = 0.0
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None

    def sample(self, now: float) -> None:
        """Take a sample, if one is due. The node goes on with its work meanwhile."""
        if now >= self._due and self._task is None:
            self._due = float("inf")
            self._task = asyncio.create_task(self._take())

    async def _take(self) -> None:
        began = environment.monotonic()
        try:
            self.note((await self._sums()).rows, environment.monotonic())
        finally:
            self._task = None
            now = environment.monotonic()
            self._due = asyncio.get_running_loop().time() + max(PERIOD_S, REST * (now - began))

    def note(self, rows: Iterable[Mapping[str, Any]], now: float) -> None:
        """Add a sample of the ledger's rows."""
        passed_s = now - self._noted_at if self._noted_at else 0.0
        self._noted_at = now
        sums: dict[Key, list[int]] = {TOTAL: [0, 0, 0]}
        for row in rows:
            trouble = row["lost"] + row["dead_lettered"]
            name = row["subscriber"]
            for key in ((name, row["topic"]), (name, ""), TOTAL):
                found = sums.setdefault(key, [0, 0, 0])
                found[0] += row["accepted"] + trouble
                found[1] += row["in_flight"]
                found[2] += trouble
        for gone in self._rings.keys() - sums.keys():
            del self._rings[gone]
        for key, (ended, in_flight, trouble) in sums.items():
            ring = self._rings.get(key)
            if ring is None:
                if len(self._rings) >= RINGS_MAX:
                    continue
                ring = self._rings[key] = Ring()
            ring.note(ended=ended, in_flight=in_flight, trouble=trouble, passed_s=passed_s, now=now)

    def of(self, subscriber: str = "", topic: str = "") -> dict[str, Any]:
        """The history of a row: `rate` now, `trend` and `waiting` over the last minutes, `changed_s` since trouble.

        >>> history = FigureHistory(sums=None)
        >>> history.of("audit", "plant/a")
        {'rate': 0.0, 'trend': [], 'waiting': [], 'changed_s': None}
        """
        ring = self._rings.get((subscriber, topic))
        if ring is None:
            return {"rate": 0.0, "trend": [], "waiting": [], "changed_s": None}
        return {
            "rate": round(ring.rates[-1], 1) if ring.rates else 0.0,
            "trend": [round(one, 1) for one in ring.rates],
            "waiting": [int(one) for one in ring.waiting],
            "changed_s": self.trouble_s(subscriber, topic),
        }

    def trouble_s(self, subscriber: str, topic: str) -> float | None:
        """How long ago a row had trouble last; None if that was not in the last minutes."""
        ring = self._rings.get((subscriber, topic))
        age_s = float("inf") if ring is None else self._noted_at - ring.changed_at
        return round(age_s, 1) if age_s < PERIOD_S * SAMPLES else None

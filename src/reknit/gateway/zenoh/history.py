"""Which of a node's events a Zenoh query asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.batch import Batch
from reknit.errors import InvalidTopic
from reknit.gateway.zenoh.entities import zid_of
from reknit.gateway.zenoh.keys import Wanted, selected
from reknit.gateway.zenoh.neighbours import ZenohNeighbours
from reknit.gateway.zenoh.publishers import ZenohPublishers
from reknit.gateway.zenoh.samples import is_from_zenoh, nearest
from reknit.ledger import Series
from reknit.node.api import GatewayNode
from reknit.topic import Pattern
from reknit.trust.rules import ANONYMOUS

PAGE: Final = 2_000
"""How many events are read at once."""
Part = tuple[Series, int, int]
"""Events `[start, stop)` of a series."""


class ZenohHistory:
    """Reads the journal for queries. Everything runs on the event loop."""

    def __init__(self, node: GatewayNode, publishers: ZenohPublishers, neighbours: ZenohNeighbours) -> None:
        self._node = node
        self._publishers = publishers
        self._neighbours = neighbours
        self._events_max = node.config.recovery.history_events_max

    async def parts(self, wanted: Wanted) -> list[Part]:
        """What an advanced subscriber asks for, of the series that this gateway puts into Zenoh."""
        found: list[Part] = []
        for topic in self._topics(wanted.pattern):
            for source, last in self._node.journal.sources(topic).items():
                if is_from_zenoh(source) or (wanted.zid and wanted.zid != zid_of(source)):
                    continue
                if self._neighbours.puts(source):
                    series = (topic, source)
                    put = self._publishers.last(series)
                    found += self._pages(series, wanted, last if put is None else min(put, last))
        return found

    def _pages(self, series: Series, wanted: Wanted, last: int) -> Iterator[Part]:
        start, stop = 1, last + 1
        if wanted.is_everything:
            start = max(start, stop - self._events_max)
        elif last > 0:
            start = nearest(wanted.start - 1, last - 1) + 1
            stop = min(stop, start + wanted.stop - wanted.start)
        start = max(start, self._node.journal.first_held(*series), 1)
        if wanted.newest:
            start = max(start, stop - wanted.newest)
        while start < stop:
            yield series, start, min(start + PAGE, stop)
            start += PAGE

    async def read(self, part: Part, since_us: int = 0) -> list[Batch]:
        """The events of a part, from a time on."""
        series, start, stop = part
        return [newer for one in self._node.find(*series, start, stop) if (newer := _since(one, since_us))]

    async def select(self, pattern: str, parameters: str, now_us: int) -> list[Batch]:
        """What a query for topics asks for: the newest event of each, unless it says more."""
        newest, age_s, bounds = selected(parameters)
        since_us = now_us - int(age_s * 1e6) if age_s else 0
        found: list[Batch] = []
        for topic in self._topics(pattern):
            held: list[Batch] = []
            for source, last in self._node.journal.sources(topic).items():
                start, stop = bounds or (1, last + 1)
                start = max(start, stop - min(newest, self._events_max), 1)
                held += await self.read(((topic, source), start, min(stop, last + 1)), since_us)
            found += _newest(held, newest)
        return found

    def _topics(self, pattern: str) -> list[str]:
        try:
            wanted = Pattern(pattern)
        except InvalidTopic:
            return []
        exchanged = self._node.config.recovery.zenoh_pattern
        topics = exchanged.matching(wanted.matching(self._node.journal.topics()))
        return [topic for topic in topics if self._node.gate.may_read(ANONYMOUS, topic)]


def _since(batch: Batch, since_us: int) -> Batch | None:
    """The events of a batch from a time on; None if there is none."""
    if since_us <= 0:
        return batch
    times = batch.columns().get("time") or [batch.head.time_us] * batch.count
    late = next((index for index, time_us in enumerate(times) if time_us >= since_us), None)
    return batch.cut(batch.first + late, batch.stop) if late is not None else None


def _newest(batches: list[Batch], count: int) -> list[Batch]:
    """The newest events of several sources of a topic, oldest first."""
    ordered = sorted(batches, key=lambda batch: batch.head.time_us, reverse=True)
    found: list[Batch] = []
    for batch in ordered:
        if count <= 0:
            break
        found.append(batch.cut(max(batch.first, batch.stop - count), batch.stop))
        count -= batch.count
    return found[::-1]

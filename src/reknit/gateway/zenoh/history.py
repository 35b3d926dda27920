"""Which of a node's events a Zenoh query asks for."""

from __future__ import annotations

import asyncio
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
PAGE_BYTES: Final = 1 << 20
"""The same in bytes, apart from the last batch."""
ANSWER_BYTES_MAX: Final = 16 << 20
"""How long the answer for a topic is, apart from its last batch. The oldest events are left out."""
SLICE_SERIES: Final = 2_000
"""After so many series the event loop does its other work."""
SLICE_FOUND: Final = 100
"""The same, if events of each are read."""
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
        for number, ((topic, source), last) in enumerate(self._series(wanted.pattern)):
            if number % SLICE_SERIES == 0:
                await asyncio.sleep(0)
            if is_from_zenoh(source) or (wanted.zid and wanted.zid != zid_of(source)):
                continue
            if self._neighbours.puts(source):
                put = self._publishers.last((topic, source))
                found += self._pages((topic, source), wanted, last if put is None else min(put, last))
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

    async def read(self, part: Part, since_us: int = 0) -> tuple[list[Batch], Part | None]:
        """The events of a part, from a time on, as many as fit; and what is left of the part."""
        series, start, stop = part
        found = self._node.find(*series, start, stop, PAGE_BYTES)
        rest = (series, found[-1].stop, stop) if found and found[-1].stop < stop else None
        return [newer for one in found if (newer := _since(one, since_us))], rest

    async def topics(self, pattern: str) -> list[str]:
        """The topics with events that match, which a Zenoh network may read."""
        return self._topics(pattern)

    async def select(self, topic: str, parameters: str, now_us: int) -> list[Batch]:
        """What a query asks for of a topic: the newest event, unless it says more."""
        asked = selected(parameters)
        if asked is None:
            return []
        newest, age_s, bounds = min(asked[0], self._events_max), asked[1], asked[2]
        since_us = now_us - int(age_s * 1e6) if age_s else 0
        held: list[Batch] = []
        for number, (source, last) in enumerate(list(self._node.journal.sources(topic).items()), 1):
            start, stop = bounds or (1, last + 1)
            part: Part | None = ((topic, source), max(start, stop - newest, 1), min(stop, last + 1))
            while part is not None:
                found, part = await self.read(part, since_us)
                held += found
                if part is not None or number % SLICE_FOUND == 0:
                    held = _newest(held, newest)
                    await asyncio.sleep(0)
        return _newest(held, newest)

    def _series(self, pattern: str) -> Iterator[tuple[Series, int]]:
        """Every series on the topics of a pattern, and its last seq."""
        journal = self._node.journal
        for topic in self._topics(pattern):
            for source, last in list(journal.sources(topic).items()):
                yield (topic, source), last

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
    room = ANSWER_BYTES_MAX
    for batch in ordered:
        if count <= 0 or room <= 0:
            break
        room -= batch.head.length
        found.append(batch.cut(max(batch.first, batch.stop - count), batch.stop))
        count -= batch.count
    return found[::-1]

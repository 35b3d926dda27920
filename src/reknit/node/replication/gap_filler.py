"""Recovers gaps that a publisher's node reports, from the node that the events come from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.remote_cache import RemoteCache
from reknit.protocol.machine import Peer
from reknit.seqset import Range
from reknit.wire.recovery import Span

RETRY_S: Final = 0.5

Fill = Callable[[Batch, int, list[Batch], str], object]
"""A gap before a batch, from a seq on, the batches that were found of it, and why the rest is lost."""


class OpenGap(msgspec.Struct, eq=False):
    """`[seq, batch.first)` is missing."""

    batch: Batch
    seq: int
    found: list[Batch]


class GapFiller:
    """Asks one node, and the caches that it knows, for the events that are missing here."""

    def __init__(self, url: str, name: str, *, config: Config, token: str = "", fill: Fill) -> None:
        self._url = url
        self._bytes_max = config.recovery.ask_bytes_max
        self._cache = RemoteCache(url, name, config, token)
        self._fill = fill
        self._gaps: dict[int, OpenGap] = {}
        self._count = 0

    async def close(self) -> None:
        """Disconnect."""
        await self._cache.close()

    def recover(self, batch: Batch, seq: int) -> None:
        """The other node delivered `[seq, batch.first)` before, and does not deliver it again: request it."""
        if any(gap.batch is batch for gap in self._gaps.values()):
            return
        self._count += 1
        self._gaps[self._count] = OpenGap(batch, seq, [])
        ranges = [(seq, batch.first)]
        series = (batch.topic, batch.source)
        self._cache.recover(self, self._count, series, ranges, self._bytes_max, deep=True)

    # -- the cache's answers

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Events were found."""
        for gap in self._gaps.values():
            gap.found.extend(batch for batch in batches if batch.source == gap.batch.source)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """The search is over."""
        if not is_last or number not in self._gaps:
            return
        gap = self._gaps.pop(number)
        start, stop = gap.seq, gap.batch.first
        found = [one.cut(start, stop) for one in gap.found if one.first < stop and start < one.stop]
        found.sort(key=lambda one: one.first)
        self._fill(gap.batch, start, found, f"nobody at {self._url} has it any more")

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not requested here."""

    def unreachable(self, cache: Peer) -> None:
        """Retry: the gaps are still there."""
        gaps, self._gaps = self._gaps, {}
        for gap in gaps.values():
            asyncio.get_running_loop().call_later(RETRY_S, self.recover, gap.batch, gap.seq)

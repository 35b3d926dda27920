"""Events that a node misses of a Zenoh publisher are asked of its cache: before a sample, or at the end.

A gap is lost when the cache answers and does not have it, or when nobody answers for `recovery.patience_s`. A publisher
that never showed a cache, by a heartbeat, a token or an answer, is asked twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import zenoh

from reknit.batch import Batch
from reknit.config import RecoverySettings
from reknit.gateway.zenoh.samples import SampleNumbering, ZenohSample, sn_of
from reknit.gateway.zenoh.session import ZenohSession
from reknit.gateway.zenoh.threads import call
from reknit.ledger import Series
from reknit.node.replication.local_publisher import LocalPublisher
from reknit.protocol.replication.gap import Gap
from reknit.seqset import SeqSet

log = logging.getLogger("reknit.zenoh")

PAGE: Final = 10_000
"""How many samples are asked for at once."""
AGAIN_S_MAX: Final = 2.0
SILENT: Final = "nobody in the Zenoh network answers for this publisher's cache"
GONE: Final = "the publisher's cache in the Zenoh network no longer holds them"

UNFIT: Final = "longer than limits.payload_bytes_max"

Published = Callable[[Series], SeqSet | None]
"""Which events of a series were published on the node, ever; None if none was."""


class GapRecoveries:
    """One recovery at a time for each source."""

    def __init__(
        self,
        settings: RecoverySettings,
        *,
        session: ZenohSession,
        numbering: SampleNumbering,
        publisher: LocalPublisher,
        published: Published,
        fitting: Callable[[list[ZenohSample]], list[ZenohSample]],
    ) -> None:
        self._patience_s = settings.patience_s
        self._again_s = settings.again_s or 0.1
        self._session = session
        self._numbering = numbering
        self._publisher = publisher
        self._published = published
        self._fitting = fitting
        self._now = asyncio.get_running_loop().time
        self._cached: set[bytes] = set()
        """Sources whose publisher is known to have a cache, or to say what it published last."""
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._next: dict[bytes, Gap] = {}
        self.lost = 0
        """How many events nobody had."""

    def has_cache(self, source: bytes) -> None:
        """A publisher sent a heartbeat, or its token is there."""
        self._cached.add(source)

    def ask(self, gap: Gap) -> None:
        """The node misses these events."""
        source = gap.series[1]
        if source in self._running:
            self._next[source] = gap
            return
        task = asyncio.create_task(self._recover(gap))
        self._running[source] = task
        task.add_done_callback(lambda _: self._ended(source))

    async def poll(self, every_s: float) -> None:
        """Ask all caches for what came at the end, until cancelled: not every publisher says what it put last."""
        while True:
            await asyncio.sleep(every_s)
            for source, (key, _) in list(self._numbering.origins.items()):
                if source not in self._running:
                    last = self._numbering.last_seq(source)
                    samples = await self._query(source, f"_sn={sn_of(last + 1)}..")
                    seqs = [self._numbering.seq(source, one.sn) for one in samples]
                    if seqs and max(seqs) > last:
                        self.ask(Gap((key, source), last + 1, max(seqs) + 1))

    def _ended(self, source: bytes) -> None:
        self._running.pop(source, None)
        gap = self._next.pop(source, None)
        if gap is not None and self._missing(gap):
            self.ask(gap)

    async def close(self) -> None:
        """Cancel those that have not ended."""
        self._next.clear()
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _recover(self, gap: Gap) -> None:
        series, start = gap.series, gap.start
        while start < gap.stop:
            part = Gap(series, start, min(gap.stop, start + PAGE))
            found, text = await self._found(part)
            if not found:  # a number can jump by billions
                part = Gap(series, start, await self._next_held(series[1], part.stop, gap.stop))
            if self._published(series) is None:  # a source begins with what its cache still holds
                self._publisher.put_before(found)
            elif self._missing(part):
                self.lost += self._publisher.fill(part, found, text)
            start = found[-1].stop if found else part.stop
            self._numbering.passed(series[1], start - 1)

    async def _found(self, gap: Gap) -> tuple[list[Batch], str]:
        """What is found of a gap, and why the rest is not."""
        source, began = gap.series[1], self._now()
        again_s, tries = self._again_s, 0
        while True:
            samples = await self._query(source, f"_sn={sn_of(gap.start)}..{sn_of(gap.stop - 1)}")
            if found := self._batches(self._fitting(samples), gap):
                self._cached.add(source)
                return found, GONE
            if samples:
                return [], UNFIT
            if not self._missing(gap) or await self._query(source, "_max=1"):
                self._cached.add(source)
                return [], GONE
            tries += 1
            patience_s = self._patience_s if source in self._cached else 0.0
            if tries > 1 and self._now() - began >= patience_s:
                return [], SILENT
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_S_MAX)

    async def _next_held(self, source: bytes, start: int, stop: int) -> int:
        """The first event of `[start, stop)` that a cache has; `stop` if there is none."""
        if start >= stop:
            return stop
        samples = await self._query(source, f"_sn={sn_of(start)}..{sn_of(stop - 1)}")
        seqs = (self._numbering.seq(source, one.sn) for one in self._fitting(samples))
        return min((seq for seq in seqs if start <= seq < stop), default=stop)

    async def _query(self, source: bytes, what: str) -> list[ZenohSample]:
        known = self._numbering.origins.get(source)
        if known is None:
            return []
        key, origin = known
        with suppress(TimeoutError, zenoh.ZError):
            selector = f"{key}/@adv/*/{origin.zid}/{origin.eid}/**?_anyke;{what}"
            return await call(self._session.query, selector)
        return []

    def _batches(self, samples: list[ZenohSample], gap: Gap) -> list[Batch]:
        source = gap.series[1]
        ordered = sorted(samples, key=lambda one: self._numbering.seq(source, one.sn))
        return [
            one.cut(gap.start, gap.stop)
            for one in self._numbering.batches(ordered)
            if one.source == source and one.first < gap.stop and gap.start < one.stop
        ]

    def _missing(self, gap: Gap) -> bool:
        """Whether the node still misses any of a gap."""
        published = self._published(gap.series)
        return published is None or bool(published.missing(gap.start, gap.stop))

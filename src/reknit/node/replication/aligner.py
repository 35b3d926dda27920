"""Alignment with another node: fetches the events that it holds and this node lacks.

Events that continue this node's series go into its journal, through its intake, like anything published. Older
events are stored beside it; see `reknit.node.recovery.aligned`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import JournalError, ReknitError
from reknit.ledger import Series
from reknit.node.recovery.aligned import AlignedEvents
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.replication.remote_session import ConnectSession
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.alignment import (
    Alignment,
    AlignmentDone,
    AskBuckets,
    AskDigest,
    AskSpans,
    BucketFingerprints,
    Digest,
    HeldSpans,
)
from reknit.protocol.recovery.search import AskCache, Search, SearchSettings
from reknit.seqset import Range
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.recovery import Span

log = logging.getLogger("reknit.node")


class Aligner:
    """Keeps this node aligned with one other, every `recovery.align_s` or when `align` is called."""

    def __init__(
        self,
        url: str,
        pattern: str = "**",
        *,
        config: Config,
        name: str,
        connect: ConnectSession,
        make_publisher: MakePublisher,
        journal: Journal,
        aligned: AlignedEvents,
    ) -> None:
        self.url = url
        self.fetched = 0
        """Events that were lacking and were fetched."""
        self._settings = config.recovery
        self._ledger = journal.ledger
        self._aligned = aligned
        self._pattern = Pattern(pattern)
        self._alignment = Alignment(self._pattern.text)
        token, ask_s = config.security.token, self._settings.ask_timeout_s
        self._session = connect(url, config=config, token=token, wait_s=ask_s)
        self._cache = RemoteCache(url, f"aligner/{name}", config, token)
        self._publisher = make_publisher(f"aligner/{url}", lambda batch: None)
        self._search = Search([url], SearchSettings(ask_s, ask_s, self._settings.ask_bytes_max))
        self._is_news = asyncio.Event()
        self._is_open = False
        self._published: dict[Series, int] = {}
        """The last seq of each series that was given to the intake and may not be durable yet."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Align at intervals."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop, and disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._is_open:
            await self._session.close()
            await self._publisher.close()
        await self._cache.close()

    async def _run(self) -> None:
        while True:
            with suppress(ReknitError, OSError, TimeoutError):
                await self.align()
            await asyncio.sleep(self._settings.align_s)

    async def align(self) -> int:
        """Compare and fetch once; returns how many events were fetched. Raises `ReknitError` without an answer."""
        if not self._is_open:
            await self._session.open()
            await self._publisher.open()
            self._is_open = True
        before = self.fetched
        self._alignment.start(*self._aligned.holdings(self._pattern))
        while effects := self._alignment.take_effects():
            for effect in effects:
                match effect:
                    case AskDigest():
                        self._alignment.receive(msgspec.convert(await self._ask("digest"), Digest))
                    case AskBuckets():
                        self._alignment.receive(
                            msgspec.convert(await self._ask("buckets"), BucketFingerprints)
                        )
                    case AskSpans(buckets=chosen):
                        self._alignment.receive(msgspec.convert(await self._ask("rows", chosen), HeldSpans))
                    case AlignmentDone(is_comparable=is_comparable):
                        if not is_comparable:
                            log.warning("%s holds other topics: not aligned", self.url)
                    case _:
                        await self._fetch(effect.series, effect.ranges)
                        await self._aligned.save()
        return self.fetched - before

    async def _ask(self, level: str, chosen: Sequence[int] = ()) -> Any:
        args = {"level": level, "pattern": self._pattern.text, "buckets": list(chosen)}
        return await self._session.ask("align", **args)

    # -- fetching

    async def _fetch(self, series: Series, ranges: Sequence[Range]) -> None:
        loop = asyncio.get_running_loop()
        self._search.want_all(series, ranges, loop.time())
        self._continue()
        while self._search:
            self._is_news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.ask_timeout_s):
                    await self._is_news.wait()
            self._search.tick(loop.time())
            self._continue()

    def _continue(self) -> None:
        for effect in self._search.take_effects():
            if isinstance(effect, AskCache):
                self._cache.recover(self, effect.number, effect.series, effect.ranges, effect.bytes_max)
        self._is_news.set()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """The other node sent events."""
        for batch in batches:
            series = (batch.topic, batch.source)
            for bounds in self._search.wanted(series).overlap(batch.first, batch.stop):
                self._store(series, batch.cut(*bounds))
            self._search.found(series, batch.first, batch.stop)
        self._continue()

    def _store(self, series: Series, batch: Batch) -> None:
        known = self._ledger.existing(series)
        last = max(known.last if known else 0, self._published.get(series, 0))
        if not last or batch.first == last + 1:
            self._published[series] = batch.stop - 1
            self._publisher.put([batch])
            self.fetched += batch.count
            return
        try:
            self.fetched += self._aligned.put(batch)
        except JournalError as error:
            log.warning("events that an alignment fetched are left for the next one: %s", error)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """The other node sent all that it has of these ranges."""
        self._search.answered(number, covered, is_last, asyncio.get_running_loop().time())
        self._continue()

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not requested here."""

    def unreachable(self, cache: Peer) -> None:
        """The connection is gone."""
        self._search.unreachable(cache, asyncio.get_running_loop().time())
        self._continue()

"""Alignment with another node: what it holds and this one lacks is fetched.

What follows on what this node has goes into its journal, through its intake, like anything published. What is older is
kept beside it; see `reknit.node.replication.aligned`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import JournalError, ReknitError
from reknit.ledger import Stream
from reknit.node.replication.local_publisher import Feed
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
from reknit.topic import Pattern
from reknit.wire.recovery import Span

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")


class Aligner:
    """Keeps this node aligned with one other, every `recovery.align_s` or when `align` is called."""

    def __init__(self, node: Node, url: str, pattern: str = "**") -> None:
        self.url = url
        self.fetched = 0
        """Events that were lacking and were fetched."""
        self._node = node
        self._pattern = Pattern(pattern)
        self._alignment = Alignment(self._pattern.text)
        token, wait_s = node.config.security.token, node.config.recovery.ask_timeout_s
        self._session = Session(url, "", node.config, token, wait_s=wait_s)
        self._far = RemoteCache(url, f"aligner/{node.name}", node.config, token)
        self._feed = Feed(node, f"aligner/{url}", lambda batch: None)
        self._search = Search([url], self._asking())
        self._is_news = asyncio.Event()
        self._is_open = False
        self._fed: dict[Stream, int] = {}
        """The last seq of each stream that was given to the intake and may not be kept yet."""
        self._task: asyncio.Task[None] | None = None

    def _asking(self) -> SearchSettings:
        settings = self._node.config.recovery
        return SearchSettings(settings.ask_timeout_s, settings.ask_timeout_s, settings.ask_bytes_max)

    async def start(self) -> None:
        """Align every so often."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._is_open:
            await self._session.close()
            await self._feed.close()
        await self._far.close()

    async def _run(self) -> None:
        while True:
            with suppress(ReknitError, OSError, TimeoutError):
                await self.align()
            await asyncio.sleep(self._node.config.recovery.align_s)

    async def align(self) -> int:
        """Compare and fetch once; gives how many events were fetched. Raises `ReknitError` if nobody answers."""
        if not self._is_open:
            await self._session.open()
            await self._feed.open()
            self._is_open = True
        before = self.fetched
        self._alignment.start(*self._node.caches.aligned.holdings(self._pattern))
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
                        await self._node.caches.aligned.save()
        return self.fetched - before

    async def _ask(self, level: str, chosen: Sequence[int] = ()) -> Any:
        args = {"level": level, "pattern": self._pattern.text, "buckets": list(chosen)}
        return await self._session.ask("align", **args)

    # -- fetching

    async def _fetch(self, stream: Stream, ranges: Sequence[Range]) -> None:
        loop = asyncio.get_running_loop()
        self._search.want_all(stream, ranges, loop.time())
        self._go_on()
        while self._search:
            self._is_news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._node.config.recovery.ask_timeout_s):
                    await self._is_news.wait()
            self._search.tick(loop.time())
            self._go_on()

    def _go_on(self) -> None:
        for effect in self._search.take_effects():
            if isinstance(effect, AskCache):
                asked = (effect.number, effect.series, effect.ranges, effect.bytes_max)
                self._far.recover(self, *asked)
        self._is_news.set()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        for batch in batches:
            stream = (batch.topic, batch.source)
            for bounds in self._search.wanted(stream).overlap(batch.first, batch.stop):
                self._keep(stream, batch.cut(*bounds))
            self._search.found(stream, batch.first, batch.stop)
        self._go_on()

    def _keep(self, stream: Stream, batch: Batch) -> None:
        known = self._node.journal.ledger.existing(stream)
        last = max(known.last if known else 0, self._fed.get(stream, 0))
        if not last or batch.first == last + 1:
            self._fed[stream] = batch.stop - 1
            self._feed.put([batch])
            self.fetched += batch.count
            return
        try:
            self.fetched += self._node.caches.aligned.put(batch)
        except JournalError as error:
            log.warning("what an alignment brought is left for the next one: %s", error)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self._search.answered(number, covered, is_last, asyncio.get_running_loop().time())
        self._go_on()

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not asked for here."""

    def unreachable(self, cache: Peer) -> None:
        self._search.unreachable(cache, asyncio.get_running_loop().time())
        self._go_on()

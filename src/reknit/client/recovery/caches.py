"""Caches in a client: the ones it asks, at further nodes, and the one that it keeps for others."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.cache_requests import Asker, Inquiries
from reknit.connection.node_connection import Link
from reknit.errors import Closed, NotConnected, Refused, ReknitError
from reknit.frame import Buffer
from reknit.ledger import Stream
from reknit.protocol.recovery import cache as machines
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern
from reknit.wire.codec import Frames, Item, encode
from reknit.wire.messages import Message, Welcome
from reknit.wire.recovery import Offer, Recover, Recovered, Survey, Surveyed

if TYPE_CHECKING:
    from reknit.client.session import Session

log = logging.getLogger("reknit.client")


class FarCache:
    """A node that is only asked for what is missing. The connection is opened with the first question."""

    def __init__(
        self, url: str, name: str, config: Config, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        self._config = config
        self._inquiries = Inquiries()
        self._link = Link(url, name, self, config, token, tls)
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Asker, Callable[[], Message]]] = []

    def recover(
        self,
        asker: Asker,
        number: int,
        stream: Stream,
        ranges: list[Range],
        bytes_max: int,
        deep: bool = False,
    ) -> None:
        """Ask for ranges."""
        self._ask(
            asker,
            lambda: self._inquiries.recover(asker, self.url, number, stream, ranges, bytes_max, deep),
        )

    def survey(self, asker: Asker, number: int, pattern: str, age_s: float, deep: bool = False) -> None:
        """Ask what there is."""
        self._ask(asker, lambda: self._inquiries.survey(asker, self.url, number, pattern, age_s, deep))

    def _ask(self, asker: Asker, make: Callable[[], Message]) -> None:
        if self._link.is_up:
            self._link.send(make())
            return
        self._waiting.append((asker, make))
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        try:
            await self._link.open(self._config.recovery.ask_timeout_s)
        except (ReknitError, OSError) as error:
            log.debug("the cache at %s can't be asked: %s", self.url, error)
            self._opening = None
            self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for asker in dict.fromkeys(asker for asker, _ in waiting):
            asker.unreachable(self.url)

    async def close(self) -> None:
        """Part."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._link.close()

    # -- the link's side

    def linked(self, welcome: Welcome) -> None:
        waiting, self._waiting = self._waiting, []
        for _, make in waiting:
            self._link.send(make())

    def unlinked(self) -> None:
        self._inquiries.lost()

    def items(self, items: list[Item]) -> None:
        for item in items:
            match item:
                case Recovered() | Surveyed():
                    self._inquiries.take(item)
                case Frames():
                    self._inquiries.take_frames(item)
                case _:
                    log.debug("ignored %r", item)


class Cache:
    """Holds the newest events of a pattern for whoever misses some. `async with Cache(session, "plant/**"):`

    It subscribes at the session's node and offers the node what it holds. An event counts as stored here once it is
    accepted, which is what a publisher with `stored_by` waits for.
    """

    def __init__(
        self, session: Session, pattern: str, bounds: machines.CacheBounds | None = None, name: str = ""
    ) -> None:
        self.pattern = Pattern(pattern)
        self.held = machines.MemoryCache(self.pattern, bounds or bounds_of(session.config))
        self._session = session
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._offer = Offer(self.pattern.text)

    async def __aenter__(self) -> Cache:
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._fill(ready))
        await ready
        self._session.switchboard.keep(self.held, self._offer)
        return self

    async def __aexit__(self, *args: object) -> None:
        self._session.switchboard.keep_no_more(self._offer)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _fill(self, ready: asyncio.Future[None]) -> None:
        try:
            subscription = self._session.subscribe(
                self.pattern.text, name=self._name, history=True, is_cache=True
            )
            async with subscription as events:
                ready.set_result(None)
                async for batch in events.batches():
                    self.held.put(batch, time.time_ns() // 1000)
        except (NotConnected, Refused, Closed) as error:
            if not ready.done():
                ready.set_exception(error)


def bounds_of(config: Config, events_max: int | None = None) -> machines.CacheBounds:
    """How much to hold, as configured; `events_max` if given."""
    settings = config.recovery
    count = settings.history_events_max if events_max is None else events_max
    return machines.CacheBounds(count, settings.history_bytes_max, settings.history_age_s_max)


class Recoverable(msgspec.Struct, frozen=True):
    """What a publisher does so that others can recover from it."""

    bounds: machines.CacheBounds | None = None
    """How much its own cache holds; None: it has none."""
    heartbeat_s: float = 0.0
    is_periodic: bool = False
    stored_by: int = 1

    @classmethod
    def of(
        cls,
        config: Config,
        cache: bool,
        history: int | None,
        heartbeat_s: float | None,
        is_periodic: bool,
        stored_by: int,
    ) -> Recoverable:
        """As configured, where the caller says nothing."""
        beat_s = config.recovery.heartbeat_s if heartbeat_s is None else heartbeat_s
        return cls(bounds_of(config, history) if cache else None, beat_s, is_periodic, stored_by)


def reply(keepers: list[machines.EventHolder], request: Recover | Survey) -> list[Buffer]:
    """The frames that answer a node's question from what this session holds."""
    if isinstance(request, Survey):
        pattern = Pattern(request.pattern)
        spans = [span for keeper in keepers for span in keeper.survey(pattern, request.age_s)]
        return [encode(Surveyed(request.id, spans))]
    found: list[Batch] = []
    covered: list[Range] = []
    for keeper in keepers:
        batches, reached = machines.answer(keeper, request)
        covered = covered or reached
        found += batches
        have = SeqSet.from_ranges((batch.first, batch.stop) for batch in found)
        rest = [gap for bounds in covered for gap in have.missing(*bounds)]
        request = Recover(request.id, request.topic, request.source, rest, request.bytes_max, request.deep)
    found.sort(key=lambda batch: batch.first)
    head = Recovered(request.id, machines.total(found), covered or request.ranges)
    return [encode(head), *(batch.data for batch in found)]

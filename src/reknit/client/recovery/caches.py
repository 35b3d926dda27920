"""A cache in a client: it holds the newest events of a pattern, and the node recovers from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from reknit import environment
from reknit.batch import Batch
from reknit.client.message_router import MessageRouter
from reknit.client.recovery.publisher_recovery import cache_bounds
from reknit.config import Config
from reknit.errors import Closed, NotConnected, Refused
from reknit.protocol.recovery import cache as machines
from reknit.topic import Pattern
from reknit.wire.recovery import Offer


class BatchSource(Protocol):
    """An open subscription, as far as a cache needs it."""

    def batches(self) -> AsyncIterator[Batch]: ...


class CacheSession(Protocol):
    """A session, as far as a cache needs it."""

    @property
    def config(self) -> Config: ...
    @property
    def router(self) -> MessageRouter: ...
    def subscribe(
        self, pattern: str, *, name: str, history: bool, is_cache: bool
    ) -> AbstractAsyncContextManager[BatchSource]: ...


class Cache:
    """Holds the newest events of a pattern for nodes and subscribers that miss some.

        async with Cache(session, "plant/**"):
            ...

    It subscribes at the session's node and offers the node what it holds. An event counts as stored here once it is
    accepted, which is what a publisher with `stored_by` waits for.
    """

    def __init__(
        self, session: CacheSession, pattern: str, bounds: machines.CacheBounds | None = None, name: str = ""
    ) -> None:
        self.pattern = Pattern(pattern)
        self.held = machines.MemoryCache(self.pattern, bounds or cache_bounds(session.config))
        self._session = session
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._offer = Offer(self.pattern.text)

    async def __aenter__(self) -> Cache:
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._fill(ready))
        await ready
        self._session.router.offer_cache(self.held, self._offer)
        return self

    async def __aexit__(self, *args: object) -> None:
        self._session.router.withdraw_cache(self._offer)
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
                    self.held.put(batch, environment.time_us())
        except (NotConnected, Refused, Closed) as error:
            if not ready.done():
                ready.set_exception(error)

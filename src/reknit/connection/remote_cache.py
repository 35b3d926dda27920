"""A further node, asked only for missing events."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from reknit.config import Config
from reknit.connection.node_connection import NodeConnection
from reknit.errors import ReknitError
from reknit.ledger import Series
from reknit.protocol.recovery.cache_requests import CacheRequester, CacheRequests
from reknit.seqset import Range
from reknit.wire.codec import Frames, Item
from reknit.wire.messages import Message, Welcome
from reknit.wire.recovery import Recovered, Surveyed

log = logging.getLogger("reknit.client")


class RemoteCache:
    """A node's journal, used as a cache. The first request opens the connection."""

    def __init__(
        self, url: str, name: str, config: Config, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        self._config = config
        self._requests = CacheRequests()
        self._connection = NodeConnection(url, name, self, config, token, tls)
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[tuple[CacheRequester, Callable[[], Message]]] = []

    def recover(
        self,
        requester: CacheRequester,
        number: int,
        stream: Series,
        ranges: list[Range],
        bytes_max: int,
        deep: bool = False,
    ) -> None:
        """Request ranges. With `deep`, the node asks its own caches too."""
        self._request(
            requester,
            lambda: self._requests.recover(requester, self.url, number, stream, ranges, bytes_max, deep),
        )

    def survey(
        self, requester: CacheRequester, number: int, pattern: str, age_s: float, deep: bool = False
    ) -> None:
        """Request a list of the ranges that the node holds."""
        self._request(
            requester, lambda: self._requests.survey(requester, self.url, number, pattern, age_s, deep)
        )

    def _request(self, requester: CacheRequester, make: Callable[[], Message]) -> None:
        if self._connection.is_up:
            self._connection.send(make())
            return
        self._waiting.append((requester, make))
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        try:
            await self._connection.open(self._config.recovery.ask_timeout_s)
        except (ReknitError, OSError) as error:
            log.debug("the cache at %s can't be reached: %s", self.url, error)
            self._opening = None
            self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for requester in dict.fromkeys(requester for requester, _ in waiting):
            requester.unreachable(self.url)

    async def close(self) -> None:
        """Close the connection."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._connection.close()

    # -- called by the connection

    def connected(self, welcome: Welcome) -> None:
        waiting, self._waiting = self._waiting, []
        for _, make in waiting:
            self._connection.send(make())

    def disconnected(self) -> None:
        self._requests.lost()

    def received(self, items: list[Item]) -> None:
        for item in items:
            match item:
                case Recovered() | Surveyed():
                    self._requests.take(item)
                case Frames():
                    self._requests.take_frames(item)
                case _:
                    log.debug("ignored %r", item)

"""Recovers gaps that a publisher's node reports: runs `reknit.protocol.replication.gap_recovery` over a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.deadline_timer import DeadlineTimer
from reknit.connection.remote_cache import RemoteCache
from reknit.node.recovery.remote_replies import RemoteReplies
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache_inputs import AskRemote, Remote
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.gap_recovery import GapRecovery

Fill = Callable[[Gap, list[Batch], str], object]
"""A gap, the batches that were found of it, and why the rest is lost."""


class GapFiller:
    """Asks one node, and the caches that it knows, for the events that are missing here."""

    def __init__(self, url: str, name: str, *, config: Config, token: str = "", fill: Fill) -> None:
        settings = config.recovery
        self._machine = GapRecovery(url, timeout_s=settings.ask_timeout_s, bytes_max=settings.ask_bytes_max)
        self._cache = RemoteCache(url, name, config, token)
        self._fill = fill
        self._now = asyncio.get_running_loop().time
        self._timer = DeadlineTimer(self._tick)

    async def close(self) -> None:
        """Disconnect."""
        self._timer.cancel()
        await self._cache.close()

    def recover(self, gap: Gap) -> None:
        """The other node delivered these events before, and does not deliver them again: request them."""
        self._machine.recover(gap, self._now())
        self._perform()

    def _reply(self, message: Remote, url: Peer) -> None:
        self._machine.receive(message, url, self._now())
        self._perform()

    def _tick(self) -> None:
        self._machine.tick(self._now())
        self._perform()

    def _perform(self) -> None:
        for effect in self._machine.take_effects():
            if isinstance(effect, AskRemote):
                replies = RemoteReplies(effect.search, self._reply)
                ask = (effect.number, effect.series, effect.ranges, effect.bytes_max)
                self._cache.recover(replies, *ask, deep=True)
            else:
                self._fill(effect.gap, effect.found, self._machine.text)
        due = self._machine.next_deadline()
        if due is not None:
            self._timer.set(due, self._now())

"""How a publisher helps others to recover its events: a cache, heartbeats, and resends to several caches."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.client.message_router import MessageRouter
from reknit.client.options import PublisherOptions
from reknit.config import Config
from reknit.connection.deadline_timer import NEVER, DeadlineTimer
from reknit.connection.publish_driver import PublishDriver
from reknit.protocol.machine import earliest
from reknit.protocol.publish.heartbeat import Heartbeats
from reknit.protocol.publish.publisher import RESEND_S
from reknit.protocol.recovery.cache import CacheBounds, MemoryCache
from reknit.topic import Pattern
from reknit.wire.recovery import Heartbeat, Offer

log = logging.getLogger("reknit.client")

TOLD_AFTER: Final = 2
"""How often events are sent again before the log says that too few caches store them."""


def cache_bounds(config: Config, events_max: int | None = None) -> CacheBounds:
    """How much a cache holds, as configured; `events_max` if given."""
    settings = config.recovery
    count = settings.history_events_max if events_max is None else events_max
    return CacheBounds(count, settings.history_bytes_max, settings.history_age_s_max)


class PublisherRecoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a publisher helps recovery."""

    bounds: CacheBounds | None = None
    """How much its own cache holds; None: it has no cache."""
    heartbeat_s: float = 0.0
    """How often it announces its last seq; 0: never."""
    is_periodic: bool = False
    stored_by: int = 1
    """How many caches have to store an event."""

    @classmethod
    def of(cls, config: Config, options: PublisherOptions) -> PublisherRecoverySettings:
        """The caller's choices, and the configuration where the caller chose nothing."""
        heartbeat_s = options.heartbeat_s
        return cls(
            bounds=cache_bounds(config, options.history) if options.cache else None,
            heartbeat_s=config.recovery.heartbeat_s if heartbeat_s is None else heartbeat_s,
            is_periodic=options.is_heartbeat_periodic,
            stored_by=options.stored_by,
        )


class PublisherRecovery:
    """Holds a publisher's newest events for the node, and announces its last seq."""

    def __init__(
        self, router: MessageRouter, driver: PublishDriver, settings: PublisherRecoverySettings
    ) -> None:
        machine = driver.machine
        self.cache = (
            MemoryCache(Pattern(machine.topic), settings.bounds) if settings.bounds is not None else None
        )
        self._router = router
        self._driver = driver
        self._offer = Offer(machine.topic, machine.source)
        self._loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer(self._tick)
        self._resends = settings.stored_by > 1
        self._is_shortage_told = False
        self._heartbeats = (
            Heartbeats(machine.topic, machine.source, settings.heartbeat_s, settings.is_periodic)
            if settings.heartbeat_s > 0
            else None
        )
        if self.cache is not None:
            router.offer_cache(self.cache, self._offer)

    def renamed(self) -> None:
        """The source became known with the connection. Nothing was published before."""
        machine = self._driver.machine
        if self._heartbeats is not None:
            self._heartbeats.renamed(machine.source)
        if self.cache is not None:
            self._router.withdraw_cache(self._offer)
            self._offer = Offer(machine.topic, machine.source)
            self._router.offer_cache(self.cache, self._offer)

    def put(self, batch: Batch, now_us: int) -> None:
        """Hold a batch that is published now."""
        if self.cache is not None:
            self.cache.put(batch, now_us)

    def published(self) -> None:
        """Batches were published: a heartbeat is due later, or a resend."""
        if self._heartbeats is not None:
            self._heartbeats.published(self._driver.machine.next_seq - 1, self._loop.time())
        if self._timer.at == NEVER and (self._heartbeats is not None or self._resends):
            self._set_timer()

    def reconnected(self) -> None:
        """Announce the last seq at once: subscribers may have lost a tail with the connection."""
        machine = self._driver.machine
        if machine.next_seq > 1 and (self.cache is not None or self._heartbeats is not None):
            self._router.connection.send(Heartbeat(machine.topic, machine.source, machine.next_seq - 1))

    def stop(self) -> None:
        """Send no more heartbeats, and resend nothing."""
        self._timer.cancel()

    def close(self) -> None:
        """Withdraw the cache."""
        self._router.withdraw_cache(self._offer)

    def _set_timer(self) -> None:
        if self._driver.error is not None:
            return
        now, machine = self._loop.time(), self._driver.machine
        resend_at = machine.next_deadline()
        if resend_at is None and self._resends and machine.unacked:
            resend_at = now + RESEND_S
        heartbeat_at = None if self._heartbeats is None else self._heartbeats.next_deadline()
        due = earliest((resend_at, heartbeat_at))
        if due is not None:
            self._timer.set(due, now)

    def _tell_shortage(self) -> None:
        shortage = self._driver.machine.shortage(TOLD_AFTER)
        if shortage is not None and not self._is_shortage_told:
            log.warning("%s", shortage)
        self._is_shortage_told = shortage is not None

    def _tick(self) -> None:
        self._driver.tick()
        self._tell_shortage()
        if self._heartbeats is not None and self._driver.machine.next_seq > 1:
            self._router.connection.send(*self._heartbeats.tick(self._loop.time()))
        self._set_timer()

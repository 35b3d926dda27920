"""How a subscription recovers missing events: which past it wants, and which caches it asks."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from reknit.client.message_router import MessageRouter
from reknit.client.options import SubscribeOptions
from reknit.config import Config, RecoverySettings
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import LocalError
from reknit.fields import NUMBER_MAX, SECONDS_MAX
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache_requests import CacheRequester
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.history import History
from reknit.protocol.recovery.recovery import Recovery, SurveyCache
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.protocol.subscribe.subscriber import NODE


class SubscriptionRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a subscription recovers, and from which caches."""

    caches: tuple[str, ...] = ()
    history: History | None = None
    query_s: float = 0.0
    is_on: bool = True
    after: Mapping[bytes, int] = {}

    @classmethod
    def of(cls, settings: RecoverySettings, options: SubscribeOptions) -> SubscriptionRecovery:
        """The caller's choices, and the configuration where the caller chose nothing."""
        return cls(
            caches=tuple(settings.caches if options.caches is None else options.caches),
            history=parse_history(options.history),
            query_s=settings.query_s if options.query_s is None else options.query_s,
            is_on=options.recover,
            after=dict(options.start.items()) if options.start is not None else {},
        )

    def machine(self, settings: RecoverySettings) -> Recovery:
        """The machine that recovers."""
        return Recovery(
            (NODE, *self.caches) if self.is_on else (),
            SearchSettings(
                settings.ask_timeout_s, settings.patience_s, settings.ask_bytes_max, settings.again_s
            ),
            HoldLimits(settings.hold_events_max, settings.hold_bytes_max),
            self.history
            if self.caches
            else None,  # without further caches, the node delivers its history without a request
            self.query_s,
            self.after,
        )


def parse_history(history: bool | int | float | timedelta) -> History | None:
    """The past that a caller wants: everything, a count, an age, or nothing. Raises `LocalError`.

    >>> parse_history(True), parse_history(2).count, parse_history(0.5).age_s, parse_history(False)
    (History(count=0, age_s=0.0), 2, 0.5, None)
    >>> parse_history(timedelta.max) == History()
    True
    """
    if isinstance(history, bool):
        return History() if history else None
    past = history.total_seconds() if isinstance(history, timedelta) else history
    if not past >= 0:
        raise LocalError(f"Invalid history {history}: a count or an age in seconds must be 0 or more.")
    if isinstance(past, int):
        return History(count=min(past, NUMBER_MAX))
    return History(age_s=past) if past <= SECONDS_MAX else History()


class RecoveryAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How a session introduces itself to further nodes."""

    name: str
    config: Config
    token: str
    tls: ssl.SSLContext | None


class RecoveryCaches:
    """The caches that a subscription asks: its node over the session's connection, others over one of their own."""

    def __init__(
        self, router: MessageRouter, access: RecoveryAccess, requester: CacheRequester, pattern: str
    ) -> None:
        self._router = router
        self._access = access
        self._requester = requester
        self._pattern = pattern
        self._remote: dict[Peer, RemoteCache] = {}

    def ask(self, effect: AskCache | SurveyCache) -> None:
        """Ask one of the caches; the requester gets the reply."""
        if effect.cache == NODE:
            self._ask_node(effect)
            return
        cache = self._remote_cache(effect.cache)
        if isinstance(effect, AskCache):
            cache.recover(
                self._requester, effect.number, effect.series, effect.ranges, bytes_max=effect.bytes_max
            )
        else:
            cache.survey(self._requester, effect.number, self._pattern, effect.age_s)

    def _ask_node(self, effect: AskCache | SurveyCache) -> None:
        connection, requests = self._router.connection, self._router.cache_requests
        if not connection.is_up:
            asyncio.get_running_loop().call_soon(self._requester.unreachable, effect.cache)
        elif isinstance(effect, AskCache):
            connection.send(
                requests.recover(
                    self._requester,
                    effect.cache,
                    effect.number,
                    effect.series,
                    effect.ranges,
                    bytes_max=effect.bytes_max,
                    deep=True,
                )
            )
        else:
            connection.send(
                requests.survey(
                    self._requester, effect.cache, effect.number, self._pattern, effect.age_s, deep=True
                )
            )

    def _remote_cache(self, cache: Peer) -> RemoteCache:
        remote = self._remote.get(cache)
        if remote is None:
            access = self._access
            remote = RemoteCache(str(cache), access.name, access.config, access.token, access.tls)
            self._remote[cache] = remote
        return remote

    async def close(self) -> None:
        """Ask for nothing more."""
        self._router.cache_requests.forget(self._requester)
        await asyncio.gather(*(cache.close() for cache in self._remote.values()))

"""How a subscription recovers what it missed: which past it wants, and whom it asks for what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from reknit.client.recovery.caches import FarCache
from reknit.config import RecoverySettings
from reknit.connection.cache_requests import Asker
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.history import History
from reknit.protocol.recovery.recovery import Recovery, SurveyCache
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.protocol.subscribe.subscriber import NODE

if TYPE_CHECKING:
    from reknit.client.session import Session


class Recovering(msgspec.Struct, frozen=True):
    """What a subscription wants to recover, and from where."""

    caches: tuple[str, ...] = ()
    history: History | None = None
    query_s: float = 0.0
    is_on: bool = True
    after: Mapping[bytes, int] = {}

    def machine(self, settings: RecoverySettings) -> Recovery:
        """What sees to it."""
        return Recovery(
            (NODE, *self.caches) if self.is_on else (),
            SearchSettings(
                settings.ask_timeout_s, settings.patience_s, settings.ask_bytes_max, settings.again_s
            ),
            HoldLimits(settings.hold_events_max, settings.hold_bytes_max),
            self.history if self.caches else None,  # the node alone sees to its history itself
            self.query_s,
            self.after,
        )


def past_of(history: bool | int | float | timedelta) -> History | None:
    """Which past is meant: all, a count, an age, or none.

    >>> past_of(True), past_of(2).count, past_of(0.5).age_s, past_of(False)
    (History(count=0, age_s=0.0), 2, 0.5, None)
    """
    if isinstance(history, timedelta):
        return History(age_s=history.total_seconds())
    if isinstance(history, bool):
        return History() if history else None
    return History(count=history) if isinstance(history, int) else History(age_s=history)


class Caches:
    """Those that a subscription asks: the node over the session's connection, others over one of their own."""

    def __init__(self, session: Session, asker: Asker, pattern: str) -> None:
        self._session = session
        self._asker = asker
        self._pattern = pattern
        self._far: dict[Peer, FarCache] = {}

    def ask(self, effect: AskCache | SurveyCache) -> None:
        """Ask one of them; the answer comes to the asker."""
        if effect.cache == NODE:
            self._ask_node(effect)
        elif isinstance(effect, AskCache):
            asked = (effect.number, effect.series, effect.ranges, effect.bytes_max)
            self._far_cache(effect.cache).recover(self._asker, *asked)
        else:
            self._far_cache(effect.cache).survey(self._asker, effect.number, self._pattern, effect.age_s)

    def _ask_node(self, effect: AskCache | SurveyCache) -> None:
        session, asker, cache = self._session, self._asker, effect.cache
        if not session.link.is_up:
            asyncio.get_running_loop().call_soon(asker.unreachable, cache)
        elif isinstance(effect, AskCache):
            asked = (effect.number, effect.series, effect.ranges, effect.bytes_max)
            session.link.send(session.inquiries.recover(asker, cache, *asked, deep=True))
        else:
            survey = (effect.number, self._pattern, effect.age_s)
            session.link.send(session.inquiries.survey(asker, cache, *survey, deep=True))

    def _far_cache(self, cache: Peer) -> FarCache:
        far = self._far.get(cache)
        if far is None:
            session = self._session
            far = FarCache(str(cache), session.name, session.config, session.token, session.tls)
            self._far[cache] = far
        return far

    async def close(self) -> None:
        """Nothing more is asked."""
        self._session.inquiries.forget(self._asker)
        await asyncio.gather(*(cache.close() for cache in self._far.values()))

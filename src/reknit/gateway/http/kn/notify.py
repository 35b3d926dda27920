"""`do_method=notify`: post an event to a topic."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import Final

from reknit import environment
from reknit.config import HttpSettings
from reknit.connection.publish_driver import StoredFuture
from reknit.gateway.access import Access
from reknit.gateway.client_quotas import RETRY_AFTER_S, ClientQuotas
from reknit.gateway.http.kn.status import FORBIDDEN, TOO_MANY, StatusEvent, new_id
from reknit.gateway.http.kn.topics import SUBTOPICS
from reknit.gateway.http.publishers import HttpPublishers
from reknit.gateway.http.requests import Form
from reknit.gateway.publish_pace import PublishPace
from reknit.protocol.tunnel.elements import (
    CONTROL,
    EXPIRES,
    ID,
    PAYLOAD,
    ROUTE,
    TIME,
    fingerprint,
    is_hop_by_hop,
)
from reknit.protocol.tunnel.topic_routes import is_journal, is_routes

SECRETS: Final = ("token", "ticket")
"""Parameters that are no part of an event."""
SQUASHED_MAX: Final = 100_000


class Notifications:
    """Publishes the events of requests. An identical repeat of an event is published once."""

    def __init__(
        self,
        settings: HttpSettings,
        *,
        access: Access,
        publishers: HttpPublishers,
        pace: PublishPace,
        quotas: ClientQuotas,
    ) -> None:
        self._pace = pace
        self._quotas = quotas
        self._settings = settings
        self._access = access
        self._publishers = publishers
        self._newest: OrderedDict[tuple[str, str], tuple[str, StoredFuture]] = OrderedDict()
        """The hash of the newest event by topic and `kn_id`."""

    async def notify(self, form: Form, topic: str, user: str) -> StatusEvent:
        """Publish, and answer when the event is stored. Raises `TimeoutError`."""
        if topic.rpartition("/")[2] == SUBTOPICS or is_routes(topic):
            return StatusEvent(FORBIDDEN, f"events can't be posted to /{topic}")
        if not self._access.may_publish(user, topic):
            return StatusEvent(FORBIDDEN, f"{user} may not post to /{topic}")
        size = sum(len(name) + len(value) for name, value in form)
        if refused := await self.admit(user, topic, 1, size):
            return refused
        stored = self._publish(topic, form)
        await asyncio.wait_for(asyncio.shield(stored), self._settings.request_timeout_s)
        return StatusEvent("200 Notified")

    async def admit(self, user: str, topic: str, events: int, size: int) -> StatusEvent | None:
        """Wait for the quotas of a user who may publish. Returns why it may not in this time; None if it may."""
        if why := self._quotas.publish(user, topic):
            return StatusEvent(TOO_MANY, f"RESOURCE_EXHAUSTED: {why}", retry_after_s=RETRY_AFTER_S)
        if why := await self._pace.wait(user, events, size, self._settings.request_timeout_s):
            retry_after_s = self._pace.retry_after_s(user)
            return StatusEvent(TOO_MANY, f"RESOURCE_EXHAUSTED: {why}", retry_after_s=retry_after_s)
        return None

    def _publish(self, topic: str, form: Form) -> StoredFuture:
        elements = {
            name: value
            for name, value in form
            if name not in CONTROL and name not in ROUTE and not is_hop_by_hop(name) and name not in SECRETS
        }
        payload = elements.pop(PAYLOAD, "").encode("utf-8", "surrogateescape")
        ttl_ms = _expire(elements, environment.time_us() / 1e6)
        is_named = bool(elements.get(ID)) and not is_journal(topic)
        elements[ID] = elements.get(ID) or new_id()
        hashed = {name: value.encode("utf-8", "surrogateescape") for name, value in elements.items()}
        event_hash = fingerprint({**hashed, PAYLOAD: payload})
        # assigned before tunnels hash the event, so that two events that are equal on purpose stay two
        elements.setdefault(TIME, str(int(environment.time_us() / 1e6)))
        newest = self._newest.get((topic, elements[ID])) if is_named else None
        if newest is not None and newest[0] == event_hash and not _has_failed(newest[1]):
            return newest[1]
        headers = {name: value.encode("utf-8", "replace").decode() for name, value in elements.items()}
        stored = self._publishers.publish(topic, payload, headers, ttl_ms)
        if is_named:
            self._newest[topic, elements[ID]] = (event_hash, stored)
            if len(self._newest) > SQUASHED_MAX:
                self._newest.popitem(last=False)
        return stored


def _has_failed(stored: StoredFuture) -> bool:
    return stored.cancelled() or (stored.done() and stored.exception() is not None)


def _expire(elements: dict[str, str], now: float) -> int:
    """Make `kn_expires` (absolute, `+secs`, `infinity`) absolute. Returns the time to live in ms, 0 for ever."""
    text = elements.get(EXPIRES, "").strip()
    if not text or text == "infinity":
        return 0
    try:
        at = now + float(text) if text.startswith("+") else float(text)
    except ValueError:
        del elements[EXPIRES]
        return 0
    if not math.isfinite(at):
        return 0
    elements[EXPIRES] = f"{at:.0f}"
    return max(1, min(int((at - now) * 1000), (1 << 32) - 1))

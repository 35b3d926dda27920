"""Publishing with outcomes from threads: each call blocks until its events have an outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.blocking.publisher import SyncPublisher
from reknit.client.publish.batching import check_payloads
from reknit.client.publish.event_fields import Headers
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.config import LimitSettings
from reknit.frame import Buffer
from reknit.outcome import Outcome


class SyncOutcomePublisher(SyncPublisher):
    """Made by `session.publisher(topic, outcome=True)` or `(topic, resend_released=True)`."""

    def __init__(self, thread: LoopThread, publisher: OutcomePublisher, limits: LimitSettings) -> None:
        super().__init__(thread, publisher, limits)
        self._outcomes = publisher

    def publish_many(
        self,
        payloads: Iterable[Buffer | str],
        keys: Sequence[str] | None = None,
        *,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
    ) -> Outcome:
        """Publish many events; returns ACCEPTED when all of them are, or raises `Undelivered`."""
        checked = [self._checked(payload) for payload in check_payloads(payloads)]
        return self._thread.run(self._publish_all(checked, keys=keys, headers=headers, ttl_ms=ttl_ms))

    async def _publish_all(self, payloads: list[bytes], **fields: Any) -> Outcome:
        return await self._outcomes.publish_many(payloads, **fields)

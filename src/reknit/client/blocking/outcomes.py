"""Publishing with outcomes from threads: each call blocks until its events have an outcome."""

from __future__ import annotations

from collections.abc import Iterable

from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.blocking.publisher import SyncPublisher
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.config import LimitSettings
from reknit.frame import Buffer
from reknit.outcome import Outcome


class SyncOutcomePublisher(SyncPublisher):
    """Made by `session.publisher(topic, outcome=True)` or `(topic, resend_released=True)`."""

    def __init__(self, thread: LoopThread, publisher: OutcomePublisher, limits: LimitSettings) -> None:
        super().__init__(thread, publisher, limits)
        self._outcomes = publisher

    def publish_many(self, payloads: Iterable[Buffer | str]) -> Outcome:
        """Publish many events; returns ACCEPTED when all of them are, or raises `Undelivered`."""
        return self._thread.run(self._publish_all([self._checked(payload) for payload in payloads]))

    async def _publish_all(self, payloads: list[bytes]) -> Outcome:
        return await self._outcomes.publish_many(payloads)

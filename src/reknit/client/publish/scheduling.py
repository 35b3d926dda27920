"""Publishing later: the node stores the events at once, and publishes them on their topic when it is time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from reknit import environment
from reknit.batch import TIME_US_MAX
from reknit.client.message_router import MessageRouter
from reknit.client.options import PublisherOptions
from reknit.client.publish.event_fields import Headers
from reknit.client.publish.publisher import Publisher
from reknit.config import Config
from reknit.connection.futures import FailedFutures
from reknit.errors import LocalError
from reknit.frame import Buffer
from reknit.topic import target_of


class ScheduledEvent(msgspec.Struct, frozen=True):
    """An event that is published later, or was cancelled before."""

    id: str
    topic: str
    at: datetime


def due_us(at: object, delay_s: object, now_us: int) -> int:
    """When an event is due, in microseconds since 1970. Raises `LocalError`.

    >>> due_us(None, 1.5, 1_000_000), due_us(2, None, 0)
    (2500000, 2000000)
    >>> due_us(datetime(2030, 1, 1), None, 0)
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid at 2030-01-01T00:00:00: it has no time zone; use datetime.now(UTC) + timedelta(…).
    """
    if (at is None) == (delay_s is None):
        raise LocalError("an event that is published later has either at or delay_s")
    if isinstance(at, datetime):
        if at.tzinfo is None:
            text = "it has no time zone; use datetime.now(UTC) + timedelta(…)."
            raise LocalError(f"Invalid at {at.isoformat()}: {text}")
        at = at.timestamp()
    name, seconds = ("delay_s", delay_s) if at is None else ("at", at)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        what = "seconds from now" if at is None else "a datetime, or seconds since 1970"
        raise LocalError(f"Invalid {name} {seconds!r}: it must be {what}, from 0.")
    return min(round(seconds * 1e6) + (now_us if at is None else 0), TIME_US_MAX)


class ScheduleTracker:
    """Which call waits for which event: the seq of an event is known once it is in a batch."""

    has_path = True

    def __init__(self) -> None:
        self._unnumbered: list[_Call] = []
        self._open: dict[int, _Call] = {}
        self.name_of: Callable[[int], str] = str
        """The id of an event by its seq."""
        self.failed = FailedFutures()

    def add(self, offset: int, topic: str, at_us: int) -> asyncio.Future[ScheduledEvent]:
        """The event behind `offset` others that have no seq yet; the future is done when it is stored."""
        future: asyncio.Future[ScheduledEvent] = asyncio.get_running_loop().create_future()
        self._unnumbered.append(_Call(offset, topic, at_us, future))
        return future

    def number(self, first: int, count: int) -> None:
        """All events without a seq become `[first, first + count)`."""
        self._open.update((first + call.offset, call) for call in self._unnumbered)
        self._unnumbered = []

    def stored(self, stop: int) -> None:
        """Everything before `stop` is stored."""
        for seq in [seq for seq in self._open if seq < stop]:
            call = self._open.pop(seq)
            if not call.future.done():
                call.future.set_result(scheduled_event(self.name_of(seq), call.topic, call.at_us))

    def fail(self, error: Exception) -> None:
        """Raise the error in everyone who waits."""
        calls = [*self._open.values(), *self._unnumbered]
        self._open, self._unnumbered = {}, []
        self.failed.fail([call.future for call in calls], error)


class _Call(NamedTuple):
    offset: int
    topic: str
    at_us: int
    future: asyncio.Future[ScheduledEvent]


class SchedulePublisher(Publisher):
    """Stores events for one topic until they are due."""

    def __init__(
        self,
        router: MessageRouter,
        config: Config,
        *,
        source: bytes,
        topic: str,
        is_lasting: bool,
        lineage: str,
        options: PublisherOptions,
    ) -> None:
        self._tracker = ScheduleTracker()
        super().__init__(
            router,
            config,
            source=source,
            topic=topic,
            is_lasting=is_lasting,
            lineage=lineage,
            options=options,
            outcomes=self._tracker,
        )
        self._tracker.name_of = lambda seq: f"{self.source.hex()}:{seq}"

    def schedule(
        self,
        payload: Buffer | str,
        at: datetime | float | None,
        delay_s: float | None,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
    ) -> asyncio.Future[ScheduledEvent]:
        """Store an event until it is due; done when it is stored."""
        at_us = due_us(at, delay_s, environment.time_us())
        self._window.admit(self._bytes)
        fields = self._field_limit.of_one(key, headers, ttl_ms)._replace(at_us=at_us)
        checked = self._check(payload)
        scheduled = self._tracker.add(len(self._payloads), target_of(self.topic), at_us)
        self._gather([checked], [fields])
        self._schedule()
        return scheduled

    def is_heard(self) -> bool:
        """Whether a caller was told why nothing more can be published."""
        was_raised = self._tracker.failed.close()
        return super().is_heard() or was_raised


def scheduled_event(id: str, topic: str, at_us: int) -> ScheduledEvent:
    """What a program is told of a scheduled event."""
    return ScheduledEvent(id, topic, datetime.fromtimestamp(at_us / 1e6, UTC))

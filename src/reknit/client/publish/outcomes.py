"""Publishing with outcomes: each call ends with the outcome of its events, not only when they are stored.

While no subscriber is there, events wait here: a publisher gets credit only while there is a path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from reknit.client.message_router import MessageRouter
from reknit.client.options import PublisherOptions
from reknit.client.publish.batching import check_payloads
from reknit.client.publish.event_fields import EventFields, Headers
from reknit.client.publish.outcome_tracker import OutcomeTracker
from reknit.client.publish.publisher import Publisher
from reknit.config import Config
from reknit.frame import Buffer
from reknit.outcome import Outcome
from reknit.protocol.publish import publisher as machines
from reknit.wire.outcomes import PathThere, Told, Want


class OutcomePublisher(Publisher):
    """Made by `session.publisher(topic, outcome=True)` or `(topic, resend_released=True)`.

    `await publisher.publish(payload)` gives `Outcome.ACCEPTED`, or raises `Released`, `Rejected` or `Modified`, which
    say where and why. `publish_many` does so for all of its events; the error is that of the worst.
    """

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
        tracker = OutcomeTracker(topic, source, config.limits.publish_waiting_max)
        super().__init__(
            router,
            config,
            source=source,
            topic=topic,
            is_lasting=is_lasting,
            lineage=lineage,
            options=options,
            outcomes=tracker,
        )
        self._tracker = tracker

    @property
    def unresolved(self) -> int:
        """How many events have a seq and no outcome yet."""
        return self._tracker.unresolved

    # -- publishing

    def publish(  # type: ignore[override]
        self,
        payload: Buffer | str,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
    ) -> asyncio.Future[Outcome]:
        """Publish one event; the awaitable gives its outcome, or raises."""
        return self.publish_many((payload,), None if key is None else (key,), headers=headers, ttl_ms=ttl_ms)

    def publish_many(  # type: ignore[override]
        self,
        payloads: Iterable[Buffer | str],
        keys: Sequence[str] | None = None,
        *,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
    ) -> asyncio.Future[Outcome]:
        """Publish many events; the awaitable gives ACCEPTED when all of them are, or raises."""
        checked: list[Buffer] = [self._check(payload) for payload in check_payloads(payloads)]
        fields: Sequence[EventFields] = ()
        if keys is not None or headers is not None or ttl_ms is not None:
            fields = self._field_limit.of_many(len(checked), keys, headers, ttl_ms)
        if not checked:
            future: asyncio.Future[Outcome] = self._loop.create_future()
            future.set_result(Outcome.ACCEPTED)
            return future
        future = self._tracker.add(len(self._payloads), len(checked))
        self._gather(checked, fields)
        self._schedule()
        return future

    async def flush(self) -> None:
        """Return when everything that could be sent so far is stored. Events without a path keep waiting."""
        self._cut()
        await self._driver.flush()

    async def resolve(self) -> None:
        """Return when everything published so far has an outcome. The awaitable of each call gives that outcome."""
        self._cut()
        while (self._tracker.unresolved or self._payloads) and self._driver.error is None:
            await self._tracker.changed()

    async def _wait_for_path(self) -> None:
        while not self._tracker.has_path:
            await super()._wait_for_path()
            await self._tracker.changed()

    # -- called by the router

    def receive(self, message: machines.Input) -> None:
        """The node sent a message about this source, or the connection changed."""
        if isinstance(message, machines.Connected):
            self._driver.machine.incarnate(message.epoch)
            self._tracker.renamed(self.source)
            first_unacked = self._driver.first_unacked
            first = self._tracker.first_unresolved(first_unacked)
            want = Want(self.source, self.topic, self._is_resent, first, first_unacked - 1)
            self._router.connection.send(want)
        elif isinstance(message, machines.Disconnected):
            self._tracker.disconnected()
        super().receive(message)

    def receive_outcomes(self, message: Told | PathThere) -> None:
        """The node reports outcomes, or whether a subscriber is there."""
        if isinstance(message, Told):
            self._tracker.receive(message)
            return
        self._tracker.path_changed(message)
        self._cut()
        self._tracker.wake()

"""Gateways that offer events: each is a source on one topic, and all of them share one publisher at the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.batch import Batch
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.gateway_api import OnPath, OnResults
from reknit.node.anycast.gateway_ends import CallSoon, GatewaySender
from reknit.node.anycast.outcome_notifier import OutcomeNotifier, OutcomeWatcher
from reknit.node.replication.local_publisher import MakePublisher
from reknit.outcome import Outcome
from reknit.wire.outcomes import RangeOutcome


class GatewaySenders:
    """The senders of one node. Their publisher is opened when the first of them offers an event."""

    def __init__(
        self,
        *,
        node_name: str,
        unsettled_max: int,
        distributions: Distributions,
        notifier: OutcomeNotifier,
        make_publisher: MakePublisher,
        notify_soon: Callable[[], None],
        call_soon: CallSoon,
    ) -> None:
        self._node_name = node_name
        self._unsettled_max = unsettled_max
        self._distributions = distributions
        self._notifier = notifier
        self._notify_soon = notify_soon
        self._call_soon = call_soon
        self._publisher = make_publisher("senders", self._durable, on_refused=self._refused)
        self._waiting: list[Batch] = []
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False

    def make(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None,
        resend_released: bool,
        source: bytes | None,
    ) -> GatewaySender:
        """A new sender, whose outcomes are told from now on."""
        has_path = self._notifier.has_path(topic)
        sender = GatewaySender(
            topic,
            on_results,
            on_path,
            source,
            has_path=has_path,
            unsettled_max=self._unsettled_max,
            put=self._put,
            on_close=self._notifier.forget,
            call_soon=self._call_soon,
        )
        watcher = OutcomeWatcher(topic, resend_released, sender=sender, has_path=has_path)
        self._notifier.watch(sender.source, watcher)
        return sender

    # -- into the node

    def _put(self, batch: Batch) -> None:
        if self._is_open:
            self._publisher.put([batch])
            return
        self._waiting.append(batch)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        await self._publisher.open()
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        self._publisher.put(waiting)

    async def close(self) -> None:
        """Disconnect from the node."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
            await self._publisher.close()

    def _durable(self, batch: Batch) -> None:
        """On a topic of the journal, an event is accepted once it is durable."""
        if self._distributions.of(batch.topic) == JOURNAL:
            fate = RangeOutcome(batch.first, batch.stop, Outcome.ACCEPTED, node=self._node_name)
            self._tell(batch, fate)

    def _refused(self, batch: Batch, code: int, text: str) -> None:
        """The node will never take it: its sender is told why."""
        self._tell(
            batch, RangeOutcome(batch.first, batch.stop, Outcome.REJECTED, code, text, self._node_name)
        )

    def _tell(self, batch: Batch, fate: RangeOutcome) -> None:
        self._notifier.tell(batch.source, fate)
        self._notify_soon()

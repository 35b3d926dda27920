"""Gateways that offer events: each is a source on one topic, and all of them share one feed into the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.gateway_api import OnPath, OnResults
from reknit.node.anycast.gateway_ends import GatewaySender
from reknit.node.anycast.outcome_notifier import Telling, Wanting
from reknit.node.replication.local_publisher import Feed
from reknit.outcome import Outcome
from reknit.wire.outcomes import Fate

if TYPE_CHECKING:
    from reknit.node.node import Node


class Senders:
    """Those of one node. Their feed is opened when the first of them offers something."""

    def __init__(
        self, node: Node, distributions: Distributions, telling: Telling, tell_soon: Callable[[], None]
    ) -> None:
        self.node = node
        self._distributions = distributions
        self._telling = telling
        self._tell_soon = tell_soon
        self._feed = Feed(node, "senders", self._kept, on_refused=self._refused)
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
        """A new one."""
        has_path = self._telling.has_path(topic)
        sender = GatewaySender(self, topic, on_results, on_path, source, has_path)
        wanting = self._telling.wanting
        wanting[sender.source] = Wanting(topic, resend_released, sender=sender, has_path=has_path)
        sender.on_close = lambda: wanting.pop(sender.source, None)
        return sender

    # -- into the node

    def put(self, batch: Batch) -> None:
        """Keep it, as soon as possible."""
        if self._is_open:
            self._feed.put([batch])
            return
        self._waiting.append(batch)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        await self._feed.open()
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        self._feed.put(waiting)

    async def close(self) -> None:
        """Part from the node."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
            await self._feed.close()

    def _kept(self, batch: Batch) -> None:
        """On a topic of the journal, durable is all that there is to it."""
        if self._distributions.of(batch.topic) == JOURNAL:
            fate = Fate(batch.first, batch.stop, Outcome.ACCEPTED, node=self.node.name)
            self._tell(batch, fate)

    def _refused(self, batch: Batch, code: int, text: str) -> None:
        """The node will never take it: its sender hears why."""
        self._tell(batch, Fate(batch.first, batch.stop, Outcome.REJECTED, code, text, self.node.name))

    def _tell(self, batch: Batch, fate: Fate) -> None:
        self._telling.tell(batch.source, fate)
        self._tell_soon()

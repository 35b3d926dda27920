"""Publishes batches that have a source and seqs already, until the node acknowledges that they are durable.

Relays, links, bridges, aligners and gateways use it. It speaks to the node over a connection, like any publisher.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.node_connection import NodeConnection
from reknit.ledger import Series
from reknit.protocol.recovery.loss_reports import TEXT
from reknit.protocol.replication.replica_publisher import (
    BatchesRefused,
    BatchesStored,
    GapFound,
    ReplicaPublisher,
    ReportLost,
    SendBatches,
)
from reknit.wire.codec import Frames, Item
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Message, Refuse, Welcome

log = logging.getLogger("reknit.node")

OnDurable = Callable[[Batch], None]
"""The node has the batch in its journal."""
OnGap = Callable[[Batch, int], None]
"""The node expects `[seq, batch.first)` first, which the publisher does not have."""
OnRefused = Callable[[Batch, int, str], None]
"""Called when the node permanently refuses a batch, with a google.rpc code and a text."""
OnLinked = Callable[[Welcome | None], None]
"""The connection was opened, also after it broke; or, with None, it broke."""


class ReportLoss(Protocol):
    """Tells the node that events are lost."""

    def __call__(self, series: Series, start: int, stop: int, text: str) -> None:
        """`[start, stop)` will never arrive."""


class BatchPublisher:
    """Publishes for any number of sources. `put` takes batches; `on_durable` is called for each that is durable."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        config: Config,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
        on_linked: OnLinked | None = None,
        report_loss: ReportLoss,
    ) -> None:
        self.url = url
        self._on_durable = on_durable
        self._on_gap = on_gap or self._skip
        self._on_refused = on_refused
        self._on_linked = on_linked
        self._report_loss = report_loss
        self._link = NodeConnection(url, name, self, config)
        self._machine = ReplicaPublisher(config.limits.publish_window_bytes)
        self._now = asyncio.get_running_loop().time
        self._declared: dict[bytes, asyncio.Future[int]] = {}
        self._room = asyncio.Event()
        self._room.set()
        self.refused = 0
        """Events that the node refused."""

    async def open(self, wait_s: float = 1.0) -> None:
        """Connect to the node, trying for `wait_s`."""
        await self._link.open(wait_s)

    async def close(self) -> None:
        """Disconnect. Unacknowledged batches are not settled either, and will be redelivered."""
        await self._link.close()

    @property
    def unacked_bytes(self) -> int:
        """How much was put in and is not yet durable."""
        return self._machine.unacked_bytes

    # -- batches

    async def room(self) -> None:
        """Return when there is room for more."""
        await self._room.wait()

    def put(self, batches: list[Batch]) -> None:
        """Give these to the node, in this order."""
        self._machine.put(batches)
        self._perform()

    def put_before(self, batches: list[Batch]) -> None:
        """Give these to the node before the unacknowledged ones of their source: they were missing."""
        self._machine.put_before(batches)
        self._perform()

    def fill(self, batch: Batch, seq: int, found: list[Batch], text: str = TEXT) -> int:
        """Fill the gap `[seq, batch.first)` with the batches that were found.

        Events that are missing before the first of them are lost. Returns how many.
        """
        lost = self._machine.fill(batch, seq, found, text)
        self._perform()
        return lost

    async def last_seq(self, source: bytes, topic: str) -> int:
        """The last seq of a source that the node has."""
        answer = self._declared.setdefault(source, asyncio.get_running_loop().create_future())
        self._link.send(Declare(source, topic))
        return await answer

    def send(self, *messages: Message) -> None:
        """Send messages of another kind, in order with the batches."""
        self._link.send(*messages)

    def resend(self) -> None:
        """Send everything that is not acknowledged."""
        self._machine.resend()
        self._perform()

    def unacked_sources(self) -> list[bytes]:
        """The sources with batches that are not acknowledged."""
        return self._machine.unacked_sources()

    def withdraw(self, source: bytes) -> list[Batch]:
        """Forget all batches of a source; returns them."""
        withdrawn = self._machine.withdraw(source)
        self._perform()
        return withdrawn

    # -- effects

    def _perform(self) -> None:
        for effect in self._machine.take_effects():
            match effect:
                case SendBatches(batches=batches):
                    self._link.send_buffers([batch.data for batch in batches])
                case BatchesStored(batches=batches):
                    for batch in batches:
                        self._on_durable(batch)
                case BatchesRefused(source=source, batches=batches, code=code, text=text):
                    log.error("the node refuses events of %s: %s", source.hex(), text)
                    self._refuse(batches, code, text)
                case GapFound(batch=batch, seq=seq):
                    self._on_gap(batch, seq)
                case ReportLost(series=series, start=start, stop=stop, text=text):
                    self._report_loss(series, start, stop, text)
                case _:
                    assert_never(effect)
        if self._machine.has_room:
            self._room.set()
        else:
            self._room.clear()

    def _refuse(self, batches: list[Batch], code: int, text: str) -> None:
        for batch in batches:
            self.refused += batch.count
            if self._on_refused is not None:
                self._on_refused(batch, code, text)

    def _skip(self, batch: Batch, seq: int) -> None:
        self.fill(batch, seq, [])

    # -- the connection's side

    def connected(self, welcome: Welcome) -> None:
        """The node is there, or there again."""
        if self._on_linked is not None:
            self._on_linked(welcome)

    def disconnected(self) -> None:
        """The connection broke. It is being opened again."""
        if self._on_linked is not None:
            self._on_linked(None)

    def received(self, items: list[Item]) -> None:
        """Messages came from the node."""
        now = self._now()
        for item in items:
            match item:
                case Ack() | Expect() | Refuse() | Hold() | Go():
                    if isinstance(item, Ack):
                        self._declare_answered(item)
                    self._machine.receive(item, self.url, now)
                case Frames():
                    log.error("a publisher received batches: dropped")
                case _:
                    log.debug("ignored %r", item)
        self._perform()

    def _declare_answered(self, ack: Ack) -> None:
        answer = self._declared.pop(ack.source, None)
        if answer is not None and not answer.done():
            answer.set_result(ack.seq)

"""Publishes batches that have a source and seqs already at the node that this process runs, until they are durable.

Links, aligners and gateways use it. It speaks to the node over a connection within the process, like any publisher, and
runs `reknit.protocol.replication.replica_publisher`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.ledger import Series
from reknit.node.replication.target_connection import TargetConnection
from reknit.protocol.recovery.loss_reports import TEXT
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.replica_publisher import (
    BatchesRefused,
    BatchesStored,
    GapFound,
    ReplicaPublisher,
    ReportLost,
    SendBatches,
)
from reknit.transport.connection import Handler
from reknit.wire.codec import Frames, Item
from reknit.wire.links import Via
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse, Welcome

log = logging.getLogger("reknit.node")

OnDurable = Callable[[Batch], None]
"""The node has the batch in its journal."""
OnGap = Callable[[Gap], None]
"""The node expects events first that the publisher does not have."""
OnRefused = Callable[[Batch, int, str], None]
"""Called when the node permanently refuses a batch, with a google.rpc code and a text."""


class ReportLoss(Protocol):
    """Tells the node that events are lost."""

    def __call__(self, series: Series, start: int, stop: int, text: str) -> None:
        """`[start, stop)` will never arrive."""


class LocalPublisher:
    """Made by `node.local_publisher`. `put` takes batches; `on_durable` is called for each that is durable."""

    def __init__(
        self,
        name: str,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
        *,
        handler: Handler,
        config: Config,
        report_loss: ReportLoss,
    ) -> None:
        self._on_durable = on_durable
        self._on_gap = on_gap or self._skip
        self._on_refused = on_refused
        self._report_loss = report_loss
        self._connection = TargetConnection("", name, self, config=config, handler=handler)
        self._machine = ReplicaPublisher(config.limits.publish_window_bytes)
        self._now = asyncio.get_running_loop().time
        self._declared: dict[bytes, asyncio.Future[int]] = {}
        self._room = asyncio.Event()
        self._room.set()
        self.refused = 0
        """Events that the node refused."""

    async def open(self) -> None:
        """Connect to the node."""
        await self._connection.open()

    async def close(self) -> None:
        """Disconnect. Unacknowledged batches are not settled either, and will be redelivered."""
        await self._connection.close()

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

    def tell(self, via: Via) -> None:
        """Tell the node which nodes a source has passed, before its batches."""
        self._connection.send(via)

    def put_before(self, batches: list[Batch]) -> None:
        """Give these to the node before the unacknowledged ones of their source: they were missing."""
        self._machine.put_before(batches)
        self._perform()

    def fill(self, gap: Gap, found: list[Batch], text: str = TEXT) -> int:
        """Fill a gap with the batches that were found.

        Events that are missing before the first of them are lost. Returns how many.
        """
        lost = self._machine.fill(gap, found, text)
        self._perform()
        return lost

    async def last_seq(self, source: bytes, topic: str) -> int:
        """The last seq of a source that the node has."""
        answer = self._declared.setdefault(source, asyncio.get_running_loop().create_future())
        self._connection.send(Declare(source, topic))
        return await answer

    # -- effects

    def _perform(self) -> None:
        for effect in self._machine.take_effects():
            match effect:
                case SendBatches(batches=batches):
                    self._connection.send_buffers([batch.data for batch in batches])
                case BatchesStored(batches=batches):
                    for batch in batches:
                        self._on_durable(batch)
                case BatchesRefused(source=source, batches=batches, code=code, text=text):
                    log.error("the node refuses events of %s: %s", source.hex(), text)
                    self._refuse(batches, code, text)
                case GapFound(gap=gap):
                    self._on_gap(gap)
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

    def _skip(self, gap: Gap) -> None:
        self.fill(gap, [])

    # -- the connection's side

    def connected(self, welcome: Welcome) -> None:
        """The node is there."""

    def disconnected(self) -> None:
        """The node stops."""

    def received(self, items: list[Item]) -> None:
        """Messages came from the node."""
        now = self._now()
        for item in items:
            match item:
                case Ack() | Expect() | Refuse() | Hold() | Go():
                    if isinstance(item, Ack):
                        self._declare_answered(item)
                    self._machine.receive(item, "node", now)
                case Frames():
                    log.error("a publisher received batches: dropped")
                case _:
                    log.debug("ignored %r", item)
        self._perform()

    def _declare_answered(self, ack: Ack) -> None:
        answer = self._declared.pop(ack.source, None)
        if answer is not None and not answer.done():
            answer.set_result(ack.seq)


class MakePublisher(Protocol):
    """Makes a publisher at this node; `node.local_publisher`."""

    def __call__(
        self,
        name: str,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
    ) -> LocalPublisher:
        """Make a publisher, which is not open yet."""

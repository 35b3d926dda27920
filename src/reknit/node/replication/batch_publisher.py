"""Publishes batches that have a source and seqs already, until the node acknowledges that they are durable.

Relays, links, bridges, aligners and gateways use it. It speaks to the node over a connection, like any publisher.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.node_connection import NodeConnection
from reknit.ledger import Series
from reknit.protocol.recovery.loss_reports import TEXT
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


class UnackedBatches:
    """Batches that were given to a node and are not acknowledged, by source, in seq order."""

    def __init__(self) -> None:
        self._by_source: dict[bytes, deque[Batch]] = {}
        self.bytes = 0

    def __iter__(self) -> Iterator[deque[Batch]]:
        return iter(list(self._by_source.values()))

    def of(self, source: bytes) -> Iterable[Batch]:
        """The batches of one source."""
        return self._by_source.get(source, ())

    def sources(self) -> list[bytes]:
        """The sources that have batches here."""
        return list(self._by_source)

    def add(self, batches: Iterable[Batch]) -> None:
        """Add batches after the others of their sources."""
        for batch in batches:
            self._by_source.setdefault(batch.source, deque()).append(batch)
            self.bytes += batch.head.length

    def sort(self, source: bytes) -> None:
        """Sort batches that were added out of order."""
        self._by_source[source] = deque(sorted(self._by_source[source], key=lambda batch: batch.first))

    def drop(self, source: bytes, stop: int, tell: Callable[[Batch], object]) -> None:
        """Forget those that end at `stop` or before, and tell of each."""
        unacked = self._by_source.get(source)
        while unacked and unacked[0].stop <= stop:
            batch = unacked.popleft()
            self.bytes -= batch.head.length
            tell(batch)
        if unacked is not None and not unacked:
            del self._by_source[source]


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
        self._bytes_max = config.limits.publish_window_bytes
        self._unacked = UnackedBatches()
        self._declared: dict[bytes, asyncio.Future[int]] = {}
        self._is_held = False
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
        return self._unacked.bytes

    # -- batches

    async def room(self) -> None:
        """Return when there is room for more."""
        await self._room.wait()

    def put(self, batches: list[Batch]) -> None:
        """Give these to the node, in this order."""
        self._unacked.add(batches)
        if self._unacked.bytes >= self._bytes_max:
            self._room.clear()
        if not self._is_held:
            self._link.send_buffers([batch.data for batch in batches])

    def put_before(self, batches: list[Batch]) -> None:
        """Give these to the node before the unacknowledged ones of their source: they were missing."""
        self._unacked.add(batches)
        for source in dict.fromkeys(batch.source for batch in batches):
            self._unacked.sort(source)
            self._resend(self._unacked.of(source))

    def fill(self, batch: Batch, seq: int, found: list[Batch], text: str = TEXT) -> int:
        """Fill the gap `[seq, batch.first)` with the batches that were found.

        Events that are missing before the first of them are lost. Returns how many.
        """
        first = found[0].first if found else batch.first
        if first > seq:
            self._report_loss((batch.topic, batch.source), seq, first, text)
        if found:
            self.put_before(found)
        else:
            self._resend(self._unacked.of(batch.source))
        return max(first - seq, 0)

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
        self._is_held = False
        for unacked in self._unacked:
            self._resend(unacked)

    def unacked_sources(self) -> list[bytes]:
        """The sources with batches that are not acknowledged."""
        return self._unacked.sources()

    def withdraw(self, source: bytes, tell: Callable[[Batch], object]) -> None:
        """Forget all batches of a source, and tell of each."""
        self._drop(source, 1 << 63, tell)

    def _resend(self, batches: Iterable[Batch]) -> None:
        self._link.send_buffers([batch.data for batch in batches])

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
        for item in items:
            match item:
                case Ack(source=source, seq=seq):
                    self._acked(source, seq)
                case Expect(source=source, seq=seq):
                    self._expected(source, seq)
                case Refuse(source=source, stop=stop, code=code, text=text):
                    self._refuse(source, stop, code, text)
                case Hold():
                    self._is_held = True
                case Go():
                    self.resend()
                case Frames():
                    log.error("a publisher received batches: dropped")
                case _:
                    log.debug("ignored %r", item)

    def _acked(self, source: bytes, seq: int) -> None:
        answer = self._declared.pop(source, None)
        if answer is not None and not answer.done():
            answer.set_result(seq)
        self._drop(source, seq + 1, self._on_durable)

    def _refuse(self, source: bytes, stop: int, code: int, text: str) -> None:
        log.error("the node refuses events of %s: %s", source.hex(), text)

        def drop(batch: Batch) -> None:
            self.refused += batch.count
            if self._on_refused is not None:
                self._on_refused(batch, code, text)

        self._drop(source, stop, drop)

    def _drop(self, source: bytes, stop: int, tell: Callable[[Batch], object]) -> None:
        self._unacked.drop(source, stop, tell)
        if self._unacked.bytes < self._bytes_max:
            self._room.set()

    def _expected(self, source: bytes, seq: int) -> None:
        """The node misses events before the ones that it got: they are unacknowledged here, or they are a gap."""
        wanted = [batch for batch in self._unacked.of(source) if batch.stop > seq]
        if wanted and wanted[0].first <= seq:
            self._resend(wanted)
        elif wanted:
            self._on_gap(wanted[0], seq)

    def _skip(self, batch: Batch, seq: int) -> None:
        self.fill(batch, seq, [])

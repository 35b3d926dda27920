"""A feed: batches with sources and seqs of their own go into the node that we are part of, and are acknowledged.

Relays and gateways use it. It speaks to the node over a connection within the process, like any publisher.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.connection.node_connection import NodeConnection
from reknit.node.replication.loss_recorder import TEXT
from reknit.transport import memory
from reknit.wire.codec import Frames, Item
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse, Welcome

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

OnGap = Callable[[Batch, int], None]
"""The node wants `[seq, batch.first)` first, which the feed does not have."""
OnRefused = Callable[[Batch, int, str], None]
"""The node takes none of a batch, for good: a google.rpc code and words."""


class Feed:
    """Publishes for any number of sources. `put` gives a batch in; `on_kept` is told when it is durable."""

    def __init__(
        self,
        node: Node,
        name: str,
        on_kept: Callable[[Batch], None],
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
    ) -> None:
        self._node = node
        self._on_kept = on_kept
        self._on_gap = on_gap or self._skip
        self._on_refused = on_refused
        self._url = f"memory://{id(node):x}/{name}"
        self._link = NodeConnection(self._url, name, self, node.config)
        self._unacked: dict[bytes, deque[Batch]] = {}
        self._told: dict[bytes, asyncio.Future[int]] = {}
        self._is_held = False
        self._room = asyncio.Event()
        self._room.set()
        self._stop: Callable[[], None] | None = None
        self.bytes = 0
        """Given in and not yet kept."""
        self.refused = 0

    async def open(self) -> None:
        """Connect to the node."""
        self._stop = memory.listen(self._url, self._node)
        await self._link.open(1.0)

    async def close(self) -> None:
        """What was not kept by now is not settled either, and comes again."""
        await self._link.close()
        if self._stop is not None:
            self._stop()

    # -- batches

    async def room(self) -> None:
        """Return when there is room for more."""
        await self._room.wait()

    def put(self, batches: list[Batch]) -> None:
        """Give these to the node, in this order."""
        for batch in batches:
            self._unacked.setdefault(batch.source, deque()).append(batch)
            self.bytes += batch.head.length
        if self.bytes >= self._node.config.limits.publish_window_bytes:
            self._room.clear()
        if not self._is_held:
            self._link.send_buffers([batch.data for batch in batches])

    def put_before(self, batches: list[Batch]) -> None:
        """Give these in before what is not kept of their source: they were missing."""
        for batch in batches:
            self._unacked.setdefault(batch.source, deque()).append(batch)
            self.bytes += batch.head.length
        for source in dict.fromkeys(batch.source for batch in batches):
            self._unacked[source] = deque(sorted(self._unacked[source], key=lambda batch: batch.first))
            self._link.send_buffers([batch.data for batch in self._unacked[source]])

    def fill(self, batch: Batch, seq: int, found: list[Batch], text: str = TEXT) -> int:
        """Give in what was found of `[seq, batch.first)`; what is missing before that is lost, and gives how much."""
        first = found[0].first if found else batch.first
        if first > seq:
            self._node.caches.skips.skip((batch.topic, batch.source), seq, first, text)
        if found:
            self.put_before(found)
        else:
            self._link.send_buffers([one.data for one in self._unacked.get(batch.source, ())])
        return max(first - seq, 0)

    async def last_seq(self, source: bytes, topic: str) -> int:
        """How far the node has got in a source."""
        told = self._told.setdefault(source, asyncio.get_running_loop().create_future())
        self._link.send(Declare(source, topic))
        return await told

    # -- the link's side

    def connected(self, welcome: Welcome) -> None:
        """Only once: a connection within the process does not break."""

    def disconnected(self) -> None:
        """The node stops, and we with it."""

    def received(self, items: list[Item]) -> None:
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
                    self._go()
                case Frames():
                    log.error("a feed was given batches: dropped")
                case _:
                    log.debug("ignored %r", item)

    def _acked(self, source: bytes, seq: int) -> None:
        told = self._told.pop(source, None)
        if told is not None and not told.done():
            told.set_result(seq)
        self._drop(source, seq + 1, self._on_kept)

    def _refuse(self, source: bytes, stop: int, code: int, text: str) -> None:
        log.error("the node does not take events of %s: %s", source.hex(), text)

        def drop(batch: Batch) -> None:
            self.refused += batch.count
            if self._on_refused is not None:
                self._on_refused(batch, code, text)

        self._drop(source, stop, drop)

    def _drop(self, source: bytes, stop: int, tell: Callable[[Batch], None]) -> None:
        unacked = self._unacked.get(source)
        while unacked and unacked[0].stop <= stop:
            batch = unacked.popleft()
            self.bytes -= batch.head.length
            tell(batch)
        if unacked is not None and not unacked:
            del self._unacked[source]
        if self.bytes < self._node.config.limits.publish_window_bytes:
            self._room.set()

    def _expected(self, source: bytes, seq: int) -> None:
        """The node misses something before what we gave it: we have it, or it is a gap."""
        wanted = [batch for batch in self._unacked.get(source, ()) if batch.stop > seq]
        if wanted and wanted[0].first <= seq:
            self._link.send_buffers([batch.data for batch in wanted])
        elif wanted:
            self._on_gap(wanted[0], seq)

    def _skip(self, batch: Batch, seq: int) -> None:
        self.fill(batch, seq, [])

    def _go(self) -> None:
        self._is_held = False
        for unacked in self._unacked.values():
            self._link.send_buffers([batch.data for batch in unacked])

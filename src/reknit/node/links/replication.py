"""Events that every subscriber gets, from node to node: one copy over each link, from journal to journal.

The journal is the queue. A node reads its own journal for each neighbour, and sends the events that are wanted there or
behind it. The neighbour acknowledges the position up to which it has stored them, remembers it, and requests events from
there when the link is up again. Events keep their source and seq, so duplicates are dropped, and gaps are noticed and
recovered.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from reknit import environment
from reknit.batch import Batch, Head
from reknit.config import Config, LinkSettings
from reknit.entries import Run
from reknit.errors import Gone
from reknit.frame import Buffer
from reknit.ledger import Series
from reknit.node.core.journal_tail import JournalTail
from reknit.node.links.forwarding_table import ForwardingTable
from reknit.node.links.link_connections import LinkConnection
from reknit.node.links.positions import NeighbourPositions
from reknit.node.replication.gap_filler import GapFiller
from reknit.node.replication.local_publisher import MakePublisher
from reknit.store.journal import Journal
from reknit.wire.codec import encode
from reknit.wire.links import Carry, Got, Pull

log = logging.getLogger("reknit.node")

TURN_BYTES: Final = 8 << 20
"""How much of the journal is read in one turn of the event loop."""
TELL_BYTES: Final = 4 << 20
"""After this much of the journal without events for it, a neighbour is told the position anyway."""


class OutgoingReplication:
    """Sends events to one neighbour."""

    def __init__(
        self,
        name: str,
        *,
        settings: LinkSettings,
        epoch: str,
        journal: Journal,
        tail: JournalTail,
        table: ForwardingTable,
        on_forwarded: Callable[[Head], None],
        pump_soon: Callable[[], None],
        first: int,
    ) -> None:
        self._name = name
        self._settings = settings
        self._epoch = epoch
        self._journal = journal
        self._tail = tail
        self._table = table
        self._on_forwarded = on_forwarded
        self._pump_soon = pump_soon
        self._first = first
        """A neighbour without a position of its own gets the events from here on: it was linked by then."""
        self._connection: LinkConnection | None = None
        self._cursor = -1
        self._told = self._since = 0
        self._unacked: deque[tuple[int, int]] = deque()
        """(position, bytes) of events that were sent and are not acknowledged."""
        self._bytes = 0
        self._passed: dict[Series, int] = {}
        """The seq up to which a series was sent there, or came from there."""
        self.events = 0
        """How many events were sent."""

    def up(self, first: int) -> None:
        """The neighbour is linked again; `first` is where its events begin if it has no position."""
        self._first = first

    def pull(self, wanted: Pull, connection: LinkConnection) -> None:
        """The neighbour requests events from a position on."""
        journal = self._journal
        self._connection = connection
        self._unacked.clear()
        self._bytes = 0
        self._passed.clear()
        if wanted.position < 0:
            self._cursor = max(self._first, journal.start)
        elif wanted.epoch != self._epoch:
            self._cursor = journal.start
        else:
            self._cursor = max(wanted.position, journal.start)
            if wanted.position < journal.start:
                log.error("%s missed events that retention has removed", self._name)
        self._told = self._since = self._cursor
        if wanted.position < 0:
            connection.send(Carry(0, self._cursor, []))
        self.pump()

    def stop(self) -> None:
        """The connection is gone."""
        self._connection, self._cursor = None, -1

    def came(self, series: Series, stop: int) -> None:
        """Events came from there: they need not go back."""
        if stop > self._passed.get(series, 0):
            self._passed[series] = stop

    def got(self, position: int) -> None:
        """Everything up to a position is stored there."""
        while self._unacked and self._unacked[0][0] <= position:
            self._bytes -= self._unacked.popleft()[1]
        self.pump()

    def look_back(self) -> None:
        """Routes changed: another node may have been meant to send recent events, and be gone."""
        if self._cursor >= 0:
            heal_us = int(self._settings.heal_s * 1e6)
            position = self._journal.position_at(environment.time_us() - heal_us)
            self._cursor = min(self._cursor, max(position, self._since, self._journal.start))
            self.pump()

    def pump(self) -> None:
        """Send events, as far as there are some and the neighbour keeps up."""
        journal, window = self._journal, self._settings.window_bytes
        stop = self._cursor + TURN_BYTES
        while 0 <= self._cursor < self._tail.end and self._bytes < window and self._connection is not None:
            if self._cursor >= stop:
                self._pump_soon()  # more than one turn of the event loop should read: let others run first
                return
            try:
                run = self._tail.read(self._cursor)
            except Gone:
                self._cursor = journal.start
                continue
            self._send(run, self._connection)
            self._cursor = run.next_position

    def _send(self, run: Run, connection: LinkConnection) -> None:
        pieces: list[Buffer] = []
        low, origins = -1, []
        for index, entry in enumerate(run.entries):
            if self._is_wanted(entry.head):
                low = index if low < 0 else low
                source = entry.head.source
                origin = None if connection.knows_origin(source) else self._table.origins.told(source)
                if origin is not None:
                    origins.append((source, origin))
                continue
            if low >= 0:
                pieces.append(run.cut(low, index))
                low = -1
        if low >= 0:
            pieces.append(run.cut(low, len(run.entries)))
        size = sum(map(len, pieces))
        if pieces or run.next_position - self._told >= TELL_BYTES:
            self._told = run.next_position
            self._unacked.append((run.next_position, size))
            self._bytes += size
            connection.send_buffers([encode(Carry(size, run.next_position, origins)), *pieces])

    def _is_wanted(self, head: Head) -> bool:
        series = (head.topic, head.source)
        if head.stop <= self._passed.get(series, 0) or not self._table.is_wanted(self._name, series):
            return False
        self._passed[series] = head.stop
        self.events += head.count
        self._on_forwarded(head)
        return True


class ReceivedPart(msgspec.Struct, eq=False):
    """A part of a neighbour's journal that is arriving. It is done when all of it has arrived and is durable here."""

    position: int
    """The neighbour's position after it."""
    batches_open: int = 0
    """How many of its batches are not durable here."""
    is_whole: bool = False
    """Whether all of it has arrived."""


class IncomingReplication:
    """Receives events from one neighbour. Gaps are recovered from its journal, as in a relay."""

    def __init__(
        self,
        neighbour: str,
        url: str,
        *,
        config: Config,
        node_name: str,
        make_publisher: MakePublisher,
        positions: NeighbourPositions,
        learn_origin: Callable[[bytes, str], None],
        on_received: Callable[[Series, int], None],
    ) -> None:
        self._neighbour = neighbour
        self._positions = positions
        self._learn_origin = learn_origin
        self._on_received = on_received
        self._gaps = GapFiller(url, node_name, config=config, fill=lambda *gap: self._publisher.fill(*gap))
        self._publisher = make_publisher(f"link/{neighbour}", self._durable, self._gaps.recover)
        self._parts: deque[ReceivedPart] = deque()
        self._part_of: dict[int, ReceivedPart] = {}
        """By the batch's id, while the batch is not durable."""
        self._connection: LinkConnection | None = None
        self.events = 0
        """How many events came."""

    async def start(self) -> None:
        """Connect to this node's journal."""
        await self._publisher.open()

    async def stop(self) -> None:
        """Take in no more events."""
        await self._gaps.close()
        await self._publisher.close()

    def pull(self, connection: LinkConnection) -> None:
        """The link is up: request the events that were missed."""
        self._connection = connection
        self._parts.clear()
        self._part_of.clear()
        connection.send(Pull(*self._positions.of(self._neighbour)))

    def take(self, carry: Carry, batches: list[Batch], is_last: bool) -> None:
        """Batches arrived. They are acknowledged when they are durable in this node's journal."""
        for source, origin in carry.origins:
            self._learn_origin(source, origin)
        if not self._parts or self._parts[-1].position != carry.position:
            self._parts.append(ReceivedPart(carry.position))
        part = self._parts[-1]
        part.batches_open += len(batches)
        part.is_whole = is_last
        for batch in batches:
            self.events += batch.count
            self._on_received((batch.topic, batch.source), batch.stop)
            self._part_of[id(batch)] = part
        self._publisher.put(batches)
        self._advance()

    def _durable(self, batch: Batch) -> None:
        part = self._part_of.pop(id(batch), None)
        if part is not None:
            part.batches_open -= 1
            self._advance()

    def _advance(self) -> None:
        position = -1
        while self._parts and self._parts[0].batches_open == 0 and self._parts[0].is_whole:
            position = self._parts.popleft().position
        connection = self._connection
        if position >= 0 and connection is not None and connection.hello is not None:
            self._positions.reached(self._neighbour, connection.hello.journal, position)
            connection.send(Got(position))

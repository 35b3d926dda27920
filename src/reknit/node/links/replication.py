"""Events that every subscriber gets, from node to node: one copy over each link, from journal to journal.

The journal is the queue. A node reads on in its own journal for each neighbour, and sends what is wanted there or
behind it; the neighbour says how far it has kept that, remembers the position, and asks from there when the link is
back. Events keep their source and seq, so what comes twice is dropped, and what is missing is noticed and recovered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from reknit.batch import Batch, Head
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import Gone
from reknit.frame import Buffer
from reknit.ledger import Stream
from reknit.node.replication.local_publisher import Feed
from reknit.node.replication.relay import Relay
from reknit.wire.codec import encode
from reknit.wire.links import Carry, Got, Pull

if TYPE_CHECKING:
    from reknit.entries import Run
    from reknit.node.links.link_connections import Line
    from reknit.node.links.links import Links

log = logging.getLogger("reknit.node")

READ_BYTES: Final = 1 << 20
TURN_BYTES: Final = 8 << 20
"""So much of the journal is looked at in one turn of the loop."""
TELL_BYTES: Final = 4 << 20
"""After so much of the journal with nothing for it, a neighbour is told how far we are nevertheless."""


class Outflow:
    """What goes to one neighbour."""

    def __init__(self, links: Links, name: str) -> None:
        self._links = links
        self._name = name
        self._journal = links.node.journal
        self._line: Line | None = None
        self._cursor = -1
        self._told = self._since = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """(position, bytes) of what was sent and is not known to be kept there."""
        self._bytes = 0
        self._is_scheduled = False
        self._passed: dict[Stream, int] = {}
        """The seq up to which a stream was sent there, or came from there."""
        self.events = 0
        """So many events were sent."""

    def pull(self, wanted: Pull, line: Line) -> None:
        """The neighbour says from where on."""
        journal = self._journal
        self._line = line
        self._under_way.clear()
        self._bytes = 0
        self._passed.clear()
        if wanted.position < 0:
            self._cursor = journal.end
        elif wanted.epoch != self._links.node.epoch:
            self._cursor = journal.start
        else:
            self._cursor = max(wanted.position, journal.start)
            if wanted.position < journal.start:
                log.error("%s missed events that retention removed meanwhile", self._name)
        self._told = self._since = self._cursor
        if wanted.position < 0:
            line.send(Carry(0, self._cursor, []))
        self.pump()

    def stop(self) -> None:
        """The line is gone."""
        self._line, self._cursor = None, -1

    def came(self, stream: Stream, stop: int) -> None:
        """Events came from there: they need not go back."""
        if stop > self._passed.get(stream, 0):
            self._passed[stream] = stop

    def got(self, position: int) -> None:
        """Everything up to a position is kept there."""
        while self._under_way and self._under_way[0][0] <= position:
            self._bytes -= self._under_way.popleft()[1]
        self.pump()

    def look_back(self) -> None:
        """Ways changed: somebody else may have been meant to send what came lately, and be gone."""
        if self._cursor >= 0:
            heal_us = int(self._links.config.links.heal_s * 1e6)
            position = self._journal.position_at(time.time_ns() // 1000 - heal_us)
            self._cursor = min(self._cursor, max(position, self._since, self._journal.start))
            self.pump()

    def pump(self) -> None:
        """Send on, as far as there is something and the neighbour keeps up."""
        journal, window = self._journal, self._links.config.links.window_bytes
        stop = self._cursor + TURN_BYTES
        while 0 <= self._cursor < journal.end and self._bytes < window and self._line is not None:
            if self._cursor >= stop:
                self._pump_soon()
                return
            try:
                run = journal.read(self._cursor, journal.end, READ_BYTES)
            except Gone:
                self._cursor = journal.start
                continue
            self._send(run, self._line)
            self._cursor = run.next_position

    def _pump_soon(self) -> None:
        """There is more than one turn of the loop should look at: others come first."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self.pump()

    def _send(self, run: Run, line: Line) -> None:
        pieces: list[Buffer] = []
        size, low, origins = 0, -1, []
        for index, entry in enumerate(run.entries):
            if self._is_wanted(entry.head):
                low = index if low < 0 else low
                if entry.head.source not in line.told:
                    line.told.add(entry.head.source)
                    origins.append((entry.head.source, self._links.wants.origin(entry.head.source)))
                continue
            if low >= 0:
                pieces.append(run.cut(low, index))
                low = -1
        if low >= 0:
            pieces.append(run.cut(low, len(run.entries)))
        size = sum(map(len, pieces))
        if pieces or run.next_position - self._told >= TELL_BYTES:
            self._told = run.next_position
            self._under_way.append((run.next_position, size))
            self._bytes += size
            line.send_buffers([encode(Carry(size, run.next_position, origins)), *pieces])

    def _is_wanted(self, head: Head) -> bool:
        stream = (head.topic, head.source)
        if head.stop <= self._passed.get(stream, 0) or not self._links.wants.is_wanted(self._name, stream):
            return False
        self._passed[stream] = head.stop
        self.events += head.count
        self._links.node.core.responses.carried(head)
        return True


class Inflow(Relay):
    """What comes from one neighbour. What is missing is recovered from its journal, as a relay does it."""

    def __init__(self, links: Links, name: str, url: str) -> None:
        self.url = url
        self._links = links
        self._neighbour = name
        self._node = links.node
        self._name = f"link/{name}"
        self._feed = Feed(links.node, self._name, self._kept, self._gap)
        self._far = RemoteCache(url, links.routes.name, links.config)
        self._gaps: dict[int, tuple[Batch, int, list[Batch]]] = {}
        self._count = 0
        self._task = None
        self._carries: deque[list[int]] = deque()
        """[position, batches that are not kept yet, whether all of it has arrived]"""
        self._batches: dict[int, list[int]] = {}
        self.line: Line | None = None
        self.events = 0
        """So many events came."""

    async def start(self) -> None:
        """Open the way into this node's journal."""
        await self._feed.open()

    def pull(self, line: Line) -> None:
        """The line stands: ask for what was missed."""
        self.line = line
        self._carries.clear()
        self._batches.clear()
        line.send(Pull(*self._links.flows.position(self._neighbour)))

    def take(self, carry: Carry, batches: list[Batch], is_last: bool) -> None:
        """Batches arrived; they count as kept when this node's journal has them."""
        for source, origin in carry.origins:
            self._links.wants.learn(source, origin)
        if not self._carries or self._carries[-1][0] != carry.position:
            self._carries.append([carry.position, 0, 0])
        state = self._carries[-1]
        state[1] += len(batches)
        state[2] = int(is_last)
        for batch in batches:
            self.events += batch.count
            self._links.flows.came((batch.topic, batch.source), batch.stop, self._neighbour)
            self._batches[id(batch)] = state
        self._feed.put(batches)
        self._advance()

    def _kept(self, batch: Batch) -> None:
        state = self._batches.pop(id(batch), None)
        if state is not None:
            state[1] -= 1
            self._advance()

    def _advance(self) -> None:
        position = -1
        while self._carries and self._carries[0][1] == 0 and self._carries[0][2]:
            position = self._carries.popleft()[0]
        if position >= 0 and self.line is not None and self.line.hello is not None:
            self._links.flows.remember(self._neighbour, self.line.hello.journal, position)
            self.line.send(Got(position))

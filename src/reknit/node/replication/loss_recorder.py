"""What never came to this node, as nobody had it: written down, told to every durable subscriber once, and lost to it.

A relay or a gateway that meets such a range goes on behind it. Subscribers without a name notice the gap themselves,
and may know a cache that has it. For one with a name this node has to answer: the range is owed to it, and ends as
lost when it is told, at once or when it is there again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from reknit.ledger import Stream
from reknit.node.core.dead_letters import time_us
from reknit.outcome import CODE_OF, End, Reason
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.effects import AppendRecord
from reknit.protocol.machine import Peer
from reknit.records import OutcomeRow, Outcomes, Record, Skipped
from reknit.wire.messages import Lost, Subscribe

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

TEXT = "nobody has it any more"


class Skips:
    """The ranges that a node goes on behind."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._coming: set[tuple[Peer, int]] = set()
        """Durable subscriptions that are being opened."""

    def skip(self, stream: Stream, start: int, stop: int, text: str = TEXT) -> None:
        """`[start, stop)` will never come: go on behind it, and tell who is owed it."""
        node, (topic, source) = self._node, stream
        if fresh := node.journal.ledger.skip(topic, source, start, stop):
            log.error("lost [%d, %d) of %s on %s: %s", start, stop, source.hex(), topic, text)
        for low, high in fresh:
            self._keep(Skipped(topic, source, low, high, text, time_us()))
        node.intake.skip(source, stop)
        for queue in self._durable() if fresh else ():
            account = node.journal.ledger.accounts.get(queue.name)
            if account is not None:
                parts = [part for bounds in fresh for part in account.open_within(stream, *bounds)]
                self._tell(queue, [(stream, *part) for part in parts])

    def watch(self, request: Subscribe, peer: Peer) -> None:
        """A subscription is asked for: when it stands it is told what it has to know."""
        if request.name and self._node.journal.ledger.skipped:
            self._coming.add((peer, request.sub))
            asyncio.get_running_loop().call_soon(self.kept)

    def kept(self) -> None:
        """More is durable: subscriptions that waited for that stand now."""
        if self._coming:
            self._coming -= self._node.dispatch.queues.keys()
            for queue in self._durable():
                self._tell(queue, self._node.journal.ledger.untold(queue.name))

    def left(self, peer: Peer) -> None:
        """A connection is gone."""
        self._coming = {key for key in self._coming if key[0] != peer}

    def _durable(self) -> list[Queue]:
        return [queue for queue in self._node.dispatch.queues.values() if queue.is_durable]

    def _tell(self, queue: Queue, untold: list[tuple[Stream, int, int]]) -> None:
        """Tell a subscriber that is there, and book what it was told as lost to it."""
        peer = self._node.peers.get(queue.peer)
        if peer is None or not untold:
            return
        reason = Reason.RETENTION
        for stream, start, stop in untold:
            peer.send(Lost(queue.sub, *stream, start, stop, str(reason)))
        code, now_us = int(CODE_OF[reason]), time_us()
        rows = [
            OutcomeRow(*stream, start, stop, End.LOST, code, str(reason), TEXT, 0, now_us)
            for stream, start, stop in untold
        ]
        self._keep(Outcomes(queue.name, rows))

    def _keep(self, record: Record) -> None:
        loop, core = asyncio.get_running_loop(), self._node.core
        core.keep(AppendRecord(core.intake.next_number(), record), loop.time())
        loop.call_soon(self._node.run_machines)

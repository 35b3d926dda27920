"""Events that never reached this node, because nobody had them: recorded, and reported to every durable subscriber once.

A relay or a gateway that meets such a range continues after it. Subscribers without a name notice the gap themselves,
and may know a cache that has it. This node is responsible for durable subscribers: it owes them the range, which ends as
lost when it is reported, at once or when the subscriber is connected again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from reknit import environment
from reknit.ledger import Series
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers
from reknit.outcome import CODE_OF, FinalOutcome, Reason
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.effects import AppendRecord
from reknit.protocol.machine import Peer
from reknit.records import OutcomeRow, Outcomes, Record, Skipped
from reknit.wire.messages import Lost, Subscribe

log = logging.getLogger("reknit.node")

TEXT = "nobody has it any more"


class LossRecorder:
    """The lost ranges of one node."""

    def __init__(self, *, core: Core, peers: Peers, run_machines: Callable[[], None]) -> None:
        self._core = core
        self._ledger = core.journal.ledger
        self._peers = peers
        self._run_machines = run_machines
        self._opening: set[tuple[Peer, int]] = set()
        """Durable subscriptions that are being opened."""

    def skip(self, series: Series, start: int, stop: int, text: str = TEXT) -> None:
        """`[start, stop)` will never arrive: continue after it, and report it to the subscribers that are owed it."""
        topic, source = series
        if fresh := self._ledger.skip(topic, source, start, stop):
            log.error("lost [%d, %d) of %s on %s: %s", start, stop, source.hex(), topic, text)
        for low, high in fresh:
            self._store(Skipped(topic, source, low, high, text, environment.time_us()))
        self._core.intake.skip(source, stop)
        for queue in self._durable() if fresh else ():
            account = self._ledger.accounts.get(queue.name)
            if account is not None:
                parts = [part for bounds in fresh for part in account.open_within(series, *bounds)]
                self._report(queue, [(series, *part) for part in parts])

    def subscribing(self, request: Subscribe, peer: Peer) -> None:
        """A subscription is requested: it is told its losses when it is open."""
        if request.name and self._ledger.skipped:
            self._opening.add((peer, request.sub))
            asyncio.get_running_loop().call_soon(self.durable)

    def durable(self) -> None:
        """More of the journal is durable: subscriptions that waited for that are open now."""
        if self._opening:
            self._opening -= self._core.dispatch.queues.keys()
            for queue in self._durable():
                self._report(queue, self._ledger.untold(queue.name))

    def left(self, peer: Peer) -> None:
        """A connection is gone."""
        self._opening = {key for key in self._opening if key[0] != peer}

    def _durable(self) -> list[Queue]:
        return [queue for queue in self._core.dispatch.queues.values() if queue.is_durable]

    def _report(self, queue: Queue, untold: list[tuple[Series, int, int]]) -> None:
        """Report ranges to a connected subscriber, and record them as lost to it."""
        peer = self._peers.get(queue.peer)
        if peer is None or not untold:
            return
        reason = Reason.RETENTION
        for series, start, stop in untold:
            peer.send(Lost(queue.sub, *series, start, stop, str(reason)))
        code, now_us = int(CODE_OF[reason]), environment.time_us()
        rows = [
            OutcomeRow(*series, start, stop, FinalOutcome.LOST, code, str(reason), TEXT, 0, now_us)
            for series, start, stop in untold
        ]
        self._store(Outcomes(queue.name, rows))

    def _store(self, record: Record) -> None:
        loop, core = asyncio.get_running_loop(), self._core
        core.stage(AppendRecord(core.intake.next_number(), record), loop.time())
        loop.call_soon(self._run_machines)

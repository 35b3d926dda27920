"""Events that can no longer be delivered: retention removed them, or their bytes are damaged.

They are recorded as lost, and reported to the subscribers that were owed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from reknit.entries import Removed
from reknit.ledger import ANYCAST, Account, Series
from reknit.outcome import CODE_OF, FinalOutcome, Reason
from reknit.protocol.dispatch.inputs import EventsGone
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.queues.queue import Queue, QueueKey
from reknit.records import OutcomeRow
from reknit.seqset import Range, SeqSet
from reknit.wire.messages import Lost

REMOVED_MAX: Final = 4096
"""This many removed ranges are remembered, for subscribers that were not connected."""
TEXTS: Final = {
    Reason.RETENTION: "removed by retention before delivery",
    Reason.DAMAGED: "its bytes in the journal are damaged",
}


class Losses:
    """Records losses and reports them to subscribers."""

    def __init__(
        self,
        state: DispatchState,
        recorder: OutcomeRecorder,
        first_held: Callable[[str, bytes], int],
        start: int,
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._first_held = first_held
        """The seq of a series from which on retention removed nothing."""
        self.start = self._removed_from = start
        self._removed: deque[tuple[int, Removed]] = deque()
        """The ranges that retention removed last, with the journal's start after that. Complete from
        `_removed_from` on."""
        for name in sorted(state.ledger.accounts):
            self.lose_removed(name)

    def trim(self, start: int, removed: list[Removed], reason: Reason = Reason.RETENTION) -> None:
        """These ranges are no longer in the journal, which begins at `start`."""
        self.start = start
        self._removed.extend((start, gone) for gone in removed)
        while len(self._removed) > REMOVED_MAX:
            self._removed_from = self._removed.popleft()[0]
        for name, account in sorted(self._state.ledger.accounts.items()):
            rows: list[OutcomeRow] = []
            for gone in removed:
                if account.pattern.matches(gone.topic):
                    series = (gone.topic, gone.source)
                    start_seq = min(max(gone.start, account.since.get(series, 1)), gone.stop)
                    rows += [
                        self._lost(series, one, reason)
                        for one in account.ended(series).missing(start_seq, gone.stop)
                    ]
            if rows:
                self._lose(name, rows, max(start, account.floor))
        for queue in self._state.queues.by_key.values():
            self._trim_queue(queue, start, removed)

    def _trim_queue(self, queue: Queue, start: int, removed: list[Removed]) -> None:
        if not queue.is_durable and queue.unsettled.has_waiting:
            self._lose_waiting(queue, removed)
        if not queue.is_live and queue.cursor.position < start:
            if not queue.is_durable:
                self._report_removed(queue, removed)
            queue.cursor.trimmed(start)

    def _lose_waiting(
        self, queue: Queue, removed: Sequence[Removed], reason: Reason = Reason.RETENTION
    ) -> None:
        """Report a loss before later events: to a subscriber, a loss ends everything before it."""
        for gone in removed:
            series = (gone.topic, gone.source)
            waiting = queue.unsettled.waiting_within(series, gone.start, gone.stop)
            ended = [one for part in waiting for one in queue.end(series, *part)]
            self._send_lost(queue, [self._lost(series, one, reason) for one in ended])

    def lose_removed(self, name: str) -> None:
        """Record events that were removed before the node crashed, or before the subscriber had an account."""
        ledger = self._state.ledger
        account = ledger.accounts.get(name)
        if account is None or account.floor >= self.start:
            return
        rows: list[OutcomeRow] = []
        for series, seqs in ledger.matching(account.pattern):
            since, held_from = account.since.get(series, 1), self._first_held(*series)
            if since < held_from:
                gone = SeqSet.from_ranges(seqs.overlap(since, held_from)).difference(account.ended(series))
                rows += [self._lost(series, bounds) for bounds in gone.ranges()]
        if rows:
            self._lose(name, rows, self.start)

    def damage(self, lost: Sequence[Removed]) -> None:
        """These events can't be read any more: they are lost to every durable subscriber, connected or not.

        Events that a subscriber has now are not: it may still accept them. Anycast reads the journal by itself.
        """
        for name in sorted(self._state.ledger.accounts):
            if not name.startswith(ANYCAST):
                self._damage_account(name, lost)
        for queue in self._state.queues.by_key.values():
            if not queue.is_durable and queue.unsettled.has_waiting:
                self._lose_waiting(queue, lost, Reason.DAMAGED)

    def _damage_account(self, name: str, lost: Sequence[Removed]) -> None:
        account, queue = self._state.ledger.accounts[name], self._state.queues.named(name)
        rows: list[OutcomeRow] = []
        for gone in lost:
            if not account.pattern.matches(gone.topic):
                continue
            series = (gone.topic, gone.source)
            start = min(max(gone.start, account.since.get(series, 1)), gone.stop)
            for owed in account.ended(series).missing(start, gone.stop):
                held = SeqSet()
                if queue is not None:
                    held = SeqSet.from_ranges(queue.unsettled.in_flight_within(series, *owed))
                rows += [self._lost(series, one, Reason.DAMAGED) for one in held.missing(*owed)]
        if rows:
            self._lose(name, rows, account.floor)

    def pass_over(self, key: QueueKey, lost: Sequence[Removed]) -> None:
        """A subscriber's cursor passes a damaged part of the journal, which held these events."""
        queue = self._state.queues.get(key)
        if queue is None or not lost:
            return
        if queue.is_durable:
            self._damage_account(queue.name, lost)
            return
        self._report_removed(queue, lost, Reason.DAMAGED)
        for gone in lost:
            queue.pass_batch((gone.topic, gone.source), gone.stop)

    def _lost(self, series: Series, bounds: Range, reason: Reason = Reason.RETENTION) -> OutcomeRow:
        return self._recorder.row(
            series, bounds, FinalOutcome.LOST, CODE_OF[reason], reason, TEXTS[reason], attempts=0
        )

    def _lose(self, name: str, rows: list[OutcomeRow], floor: int) -> None:
        queue = self._state.queues.named(name)
        if queue is not None:
            for row in rows:
                queue.lose((row.topic, row.source), row.start, row.stop)
            self._send_lost(queue, rows)
        self._recorder.record(name, rows, floor)

    def _send_lost(self, queue: Queue, rows: list[OutcomeRow]) -> None:
        for row in rows:
            lost = Lost(queue.sub, row.topic, row.source, row.start, row.stop, row.reason)
            self._state.send(queue.peer, lost)

    def report_unknown(self, queue: Queue, account: Account) -> None:
        """Report losses that a durable subscriber has not confirmed to know of: it was away, or the report was."""
        for series, by_reason in sorted(account.losses.items()):
            for reason, seqs in sorted(by_reason.items()):
                for start, stop in seqs.ranges():
                    self._state.send(queue.peer, Lost(queue.sub, *series, start, stop, reason))

    def report_removed_since(self, queue: Queue, position: int) -> None:
        """Retention removed events after `position` while the subscriber was not connected."""
        removed = [gone for up_to, gone in self._removed if up_to > position]
        if (
            position < self._removed_from
        ):  # longer ago than is remembered: the subscriber knows which events it got
            removed = [
                Removed(*series, seqs.first, held_from)
                for series, seqs in self._state.ledger.published.items()
                if seqs.first < (held_from := self._first_held(*series))
            ]
        self._report_removed(queue, removed)

    def _report_removed(
        self, queue: Queue, removed: Sequence[Removed], reason: Reason = Reason.RETENTION
    ) -> None:
        for gone in removed:
            start = max(gone.start, queue.cursor.first_owed((gone.topic, gone.source)))
            if start < gone.stop and queue.pattern.matches(gone.topic):
                lost = Lost(queue.sub, gone.topic, gone.source, start, gone.stop, str(reason))
                self._state.send(queue.peer, lost)

    def lose_gone(self, message: EventsGone) -> None:
        """Events that were to be delivered are no longer in the journal."""
        queue = self._state.queues.get(message.key)
        if queue is None:
            return
        series = (message.topic, message.source)
        rows = [
            self._lost(series, one, message.reason) for one in queue.lose(series, message.start, message.stop)
        ]
        if queue.is_durable and rows:
            self._lose(queue.name, rows, queue.move_floor(self._state.end))
        else:
            self._send_lost(queue, rows)

"""What can't be delivered any more because retention removed it: booked as lost, and told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from reknit.entries import Removed
from reknit.ledger import Stream
from reknit.outcome import CODE_OF, End, Reason
from reknit.protocol.dispatch.inputs import Vanished
from reknit.protocol.dispatch.outcome_recorder import Endings
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.state import Desk
from reknit.records import OutcomeRow
from reknit.seqset import Range, SeqSet
from reknit.wire.messages import Lost

REMOVED_MAX: Final = 4096
"""So many of the ranges that retention removed are remembered, for subscribers that were away."""
TEXT: Final = "removed by retention before delivery"


class Losses:
    """Books and tells losses."""

    def __init__(
        self, desk: Desk, endings: Endings, first_held: Callable[[str, bytes], int], start: int
    ) -> None:
        self._desk = desk
        self._endings = endings
        self._first_held = first_held
        """The seq of a stream from which on retention removed nothing."""
        self.start = self._removed_from = start
        self._removed: deque[tuple[int, Removed]] = deque()
        """What retention removed last, with the position up to which it did: all of it from `_removed_from` on."""
        for name in sorted(desk.ledger.accounts):
            self.lose_removed(name)

    def trim(self, start: int, removed: list[Removed]) -> None:
        """Retention removed these ranges; the journal begins at `start`."""
        self.start = start
        self._removed.extend((start, gone) for gone in removed)
        while len(self._removed) > REMOVED_MAX:
            self._removed_from = self._removed.popleft()[0]
        for name, account in sorted(self._desk.ledger.accounts.items()):
            rows: list[OutcomeRow] = []
            for gone in removed:
                if account.pattern.matches(gone.topic):
                    stream = (gone.topic, gone.source)
                    start_seq = min(max(gone.start, account.since.get(stream, 1)), gone.stop)
                    rows += [
                        self._lost(stream, one) for one in account.ended(stream).missing(start_seq, gone.stop)
                    ]
            if rows:
                self._lose(name, rows, max(start, account.floor))
        for queue in self._desk.queues.values():
            if not queue.is_durable and queue.waiting:
                self._lose_waiting(queue, removed)
            if not queue.is_live and queue.cursor < start:
                if not queue.is_durable:
                    self._tell_lost(queue, removed)
                queue.cursor = start
                queue.scanning = False

    def _lose_waiting(self, queue: Queue, removed: list[Removed]) -> None:
        """Told before what lies behind it: a subscriber takes a loss for the end of everything before."""
        for gone in removed:
            stream = (gone.topic, gone.source)
            waiting = queue.waiting.get(stream, SeqSet()).overlap(gone.start, gone.stop)
            ended = [one for part in waiting for one in queue.end(stream, *part)]
            self._send_lost(queue, [self._lost(stream, one) for one in ended])

    def lose_removed(self, name: str) -> None:
        """Book what was removed while nobody could: before the node crashed, or before the account was there."""
        ledger = self._desk.ledger
        account = ledger.accounts.get(name)
        if account is None or account.floor >= self.start:
            return
        rows: list[OutcomeRow] = []
        for stream, seqs in ledger.published.items():
            since, held_from = account.since.get(stream, 1), self._first_held(*stream)
            if since < held_from and account.pattern.matches(stream[0]):
                gone = SeqSet.from_ranges(seqs.overlap(since, held_from)).difference(account.ended(stream))
                rows += [self._lost(stream, bounds) for bounds in gone.ranges()]
        if rows:
            self._lose(name, rows, self.start)

    def _lost(self, stream: Stream, bounds: Range) -> OutcomeRow:
        reason = Reason.RETENTION
        return self._endings.row(stream, bounds, End.LOST, CODE_OF[reason], reason, TEXT, 0)

    def _lose(self, name: str, rows: list[OutcomeRow], floor: int) -> None:
        queue = self._desk.by_name.get(name)
        if queue is not None:
            for row in rows:
                queue.end((row.topic, row.source), row.start, row.stop)
            self._send_lost(queue, rows)
        self._endings.record(name, rows, floor)

    def _send_lost(self, queue: Queue, rows: list[OutcomeRow]) -> None:
        for row in rows:
            self._desk.say(
                queue.peer, Lost(queue.sub, row.topic, row.source, row.start, row.stop, row.reason)
            )

    def tell_removed(self, queue: Queue, position: int) -> None:
        """A subscriber was away while retention removed what it had not got yet."""
        removed = [gone for up_to, gone in self._removed if up_to > position]
        if position < self._removed_from:  # longer ago than is remembered: it knows what of this it got
            removed = [
                Removed(*stream, seqs.first, held_from)
                for stream, seqs in self._desk.ledger.published.items()
                if seqs.first < (held_from := self._first_held(*stream))
            ]
        self._tell_lost(queue, removed)

    def _tell_lost(self, queue: Queue, removed: list[Removed]) -> None:
        for gone in removed:
            passed = queue.passed.get((gone.topic, gone.source), 0)
            start = max(gone.start, passed, queue.after.get(gone.source, 0) + 1)
            if start < gone.stop and queue.pattern.matches(gone.topic):
                lost = Lost(queue.sub, gone.topic, gone.source, start, gone.stop, str(Reason.RETENTION))
                self._desk.say(queue.peer, lost)

    def vanish(self, message: Vanished) -> None:
        """Events that were to be handed out are not in the journal any more."""
        queue = self._desk.queues.get(message.key)
        if queue is None:
            return
        stream = (message.topic, message.source)
        rows = [self._lost(stream, one) for one in queue.end(stream, message.start, message.stop)]
        if queue.is_durable and rows:
            self._lose(queue.name, rows, queue.move_floor(self._desk.end))
        else:
            self._send_lost(queue, rows)

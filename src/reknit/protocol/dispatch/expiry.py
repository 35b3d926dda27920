"""Ends events whose time to live ran out.

Deadlines are kept by tenths of a second and as ranges, so that many events of a source cost as little as one. An
event that is due and still waits becomes a dead letter. A subscriber may finish one that it has, but it is not
retried.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from reknit.attempts import AttemptCount
from reknit.batch import Batch, Head
from reknit.entries import Run
from reknit.ledger import ANYCAST, Account, Series
from reknit.outcome import Reason
from reknit.protocol.dispatch.inputs import EventsExpired
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.queues.queue import Queue
from reknit.protocol.ttl import EXPIRED_BETWEEN_ATTEMPTS, deadlines_of
from reknit.records import OutcomeRow
from reknit.seqset import Range, SeqSet

STEP_US: Final = 100_000
EXPIRED_BEFORE_DELIVERY: Final = "its ttl ran out before it was delivered"


class Expiry:
    """The deadlines of all events that may still wait for a durable subscriber."""

    def __init__(self, state: DispatchState, recorder: OutcomeRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._due: list[int] = []
        """A heap of steps."""
        self._steps: dict[int, dict[Series, SeqSet]] = {}

    def has_ttl(self, head: Head) -> bool:
        """Whether a batch's events may expire: by the batch's ttl, by one in its columns, or by the topic's."""
        rules = self._state.rules
        return bool(head.ttl_ms or head.flags) or (rules.has_ttl and bool(rules.of(head.topic).ttl_ms))

    def note(self, run: Run, index: int) -> None:
        """A batch with a ttl is in the journal."""
        head = run.entries[index].head
        for start, stop, deadline_us in self.deadlines(run, index):
            step = -(-deadline_us // STEP_US)
            by_series = self._steps.get(step)
            if by_series is None:
                by_series = self._steps[step] = {}
                heapq.heappush(self._due, step)
            by_series.setdefault((head.topic, head.source), SeqSet()).add(start, stop)

    def deadlines(self, run: Run, index: int) -> Iterator[tuple[int, int, int]]:
        """(start, stop, deadline in microseconds since 1970) of a batch's events that expire."""
        head = run.entries[index].head
        columns = Batch(head, run.cut(index, index + 1)).columns() if head.ttl_ms or head.flags else {}
        yield from deadlines_of(head, columns, self._state.rules.of(head.topic).ttl_ms, self._state.time_us)

    def expired(self, run: Run, index: int) -> list[Range]:
        """Which events of a batch are past their ttl."""
        now_us = self._state.time_us
        return [(start, stop) for start, stop, due_us in self.deadlines(run, index) if due_us < now_us]

    def next_due(self) -> float | None:
        """When something expires, on the caller's clock."""
        state = self._state
        return state.now + (self._due[0] * STEP_US - state.time_us) / 1e6 if self._due else None

    def tick(self) -> None:
        """Make dead letters of waiting events that have expired."""
        accounts: list[Account] | None = None
        while self._due and self._due[0] * STEP_US <= self._state.time_us:
            accounts = self._accounts() if accounts is None else accounts
            for series, seqs in self._steps.pop(heapq.heappop(self._due)).items():
                for account in accounts:
                    if account.pattern.matches(series[0]):
                        text = EXPIRED_BEFORE_DELIVERY
                        self.end_waiting(account, series, seqs.ranges(), 0, Reason.EXPIRED, text)

    def _accounts(self) -> list[Account]:
        """The accounts of all durable subscribers, by name."""
        names = [name for name in sorted(self._state.ledger.accounts) if not name.startswith(ANYCAST)]
        return [account for name in names if (account := self._state.account(name)) is not None]

    def end_waiting(
        self, account: Account, series: Series, ranges: list[Range], code: int, reason: Reason, text: str
    ) -> int:
        """Make dead letters of those events that still wait for a subscriber, connected or not; returns how many.

        `account` is its account by `DispatchState.account`.
        """
        name, queue = account.name, self._state.queues.named(account.name)
        since = account.since.get(series, 1)
        ended = account.ended(series)
        left = [part for low, high in ranges if since < high for part in ended.missing(max(low, since), high)]
        if queue is None:
            counts = account.tallies.get(series, {})
            rows = [
                self._recorder.letter(name, series, piece, code, reason, text, count)
                for low, high in left
                for piece, count in _by_count(low, high, counts)
            ]
            floor = account.floor
        else:
            rows = [row for one in left for row in self._end_queued(queue, series, one, code, reason, text)]
            floor = queue.move_floor(self._state.end)
        if rows:
            self._recorder.record(name, rows, floor)
        return sum(row.stop - row.start for row in rows)

    def _end_queued(
        self, queue: Queue, series: Series, bounds: Range, code: int, reason: Reason, text: str
    ) -> list[OutcomeRow]:
        """The same for a queue: events that wait beside the cursor or ahead of it, but none in flight."""
        if reason is Reason.EXPIRED:
            queue.expire(series, *bounds)
        recorder = self._recorder
        rows: list[OutcomeRow] = []
        for one in queue.unsettled.waiting_within(series, *bounds):
            rows += recorder.dead_letter(queue, series, one, code, reason, text)
        for start, stop, count in queue.end_ahead(series, *bounds, self._state.end):
            tried = count or AttemptCount()
            rows.append(recorder.letter(queue.name, series, (start, stop), code, reason, text, tried))
        return rows

    def expire_in_flight(self, message: EventsExpired) -> None:
        """Events that a subscriber gave back are past their ttl: there is no next attempt."""
        queue = self._state.queues.get(message.key)
        if queue is not None:
            series, bounds = (message.topic, message.source), (message.start, message.stop)
            text = EXPIRED_BETWEEN_ATTEMPTS
            rows = self._recorder.dead_letter(queue, series, bounds, 0, Reason.EXPIRED, text)
            self._recorder.record_ended(queue, rows)


def _by_count(start: int, stop: int, counts: dict[int, AttemptCount]) -> Iterator[tuple[Range, AttemptCount]]:
    """`[start, stop)`: events that were tried one by one, the rest as ranges."""
    at = start
    for seq in sorted(seq for seq in counts if start <= seq < stop):
        if at < seq:
            yield (at, seq), AttemptCount()
        yield (seq, seq + 1), counts[seq]
        at = seq + 1
    if at < stop:
        yield (at, stop), AttemptCount()

"""Applies the dispositions of subscribers, row by row.

outcome    effect
accepted   the event ends
released   queued again; not counted as a failed attempt
failed     counted, queued again after a back-off; a dead letter if no further attempt is allowed
modified   the same
rejected   a dead letter
received   the subscriber still processes it: the lease is extended

An expired lease is applied here too, as a failed attempt.
"""

from __future__ import annotations

from collections import deque

from reknit.attempts import Attempt, AttemptCount
from reknit.fields import SeriesRange
from reknit.ledger import Series
from reknit.outcome import Code, Outcome, Reason
from reknit.protocol.dispatch.delivery_pump import DeliveryPump
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.redelivery import Redelivery
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.disposition import Disposition
from reknit.protocol.machine import Peer
from reknit.protocol.queues.leases import Lease
from reknit.protocol.queues.queue import Queue, QueueKey, Recipient
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.protocol.ttl import EXPIRED_BETWEEN_ATTEMPTS
from reknit.records import AttemptRow, OutcomeRow
from reknit.seqset import Range
from reknit.wire.messages import DispositionRow, Revoked, Settle, Settled


class DispatchSettlement:
    """Applies dispositions."""

    def __init__(
        self, state: DispatchState, recorder: OutcomeRecorder, pump: DeliveryPump, redelivery: Redelivery
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._pump = pump
        self._redelivery = redelivery
        self._confirming: deque[tuple[int, Recipient, int]] = deque()
        """(record number, subscription, settle number): confirmed when the record is durable."""
        self._after: dict[QueueKey, int] = {}
        """By subscription: the number that must be durable before its next settlement is confirmed."""

    def confirm_after(self, number: int, key: QueueKey) -> None:
        """Confirm the next settlement of a subscription when this number is durable, or later."""
        self._after[key] = number

    def settle(self, message: Settle, peer: Peer) -> None:
        """A subscriber's outcomes. Repeating them changes nothing."""
        state = self._state
        after = self._after.pop((peer, message.sub), 0)
        queue = state.queues.get((peer, message.sub))
        if queue is None:
            return  # the subscription ended meanwhile: its events are still owed
        recipient = queue.recipient
        if queue.settle_numbered(message.number):
            self._carry_out(queue, message.rows)
            self._learn(queue, message.lost)
        recorded = max(self._recorder.last_record(queue.name), after)
        if recorded > state.durable_number:  # `Settled` confirms everything before it too
            self._confirming.append((recorded, recipient, recipient.settled_number))
        else:
            state.send(peer, Settled(message.sub, recipient.settled_number))

    def _carry_out(self, queue: Queue, rows: list[DispositionRow]) -> None:
        ended: list[OutcomeRow] = []
        tried: list[AttemptRow] = []
        before = queue.unsettled.in_flight
        for row in rows:
            ended += self._carry_out_row(queue, row, tried)
        self._record(queue, ended, tried)
        if queue.leases is not None:
            queue.leases.settled(self._state.now, before - queue.unsettled.in_flight)
        if queue.lanes.is_ready or queue.leases is not None or queue.is_shared or not queue.is_live:
            self.deliver_rest(queue)

    def _learn(self, queue: Queue, lost: list[SeriesRange]) -> None:
        """A durable subscriber knows of these losses: it is not told again."""
        account = self._state.account(queue.name) if lost and queue.is_durable else None
        if account is not None:
            news = [one for one in lost if account.has_losses((one.topic, one.source), one.start, one.stop)]
            if news:
                self._recorder.record_known(queue.name, news)

    def _record(self, queue: Queue, ended: list[OutcomeRow], tried: list[AttemptRow]) -> None:
        if queue.is_durable and tried:
            self._recorder.record_attempts(queue.name, tried)
        self._recorder.record_ended(queue, ended)

    def _carry_out_row(self, queue: Queue, row: DispositionRow, tried: list[AttemptRow]) -> list[OutcomeRow]:
        """Apply one row; returns the events that it ended."""
        series, bounds = (row.topic, row.source), (row.start, row.stop)
        match row.outcome:
            case Outcome.ACCEPTED:
                return self._recorder.accept(queue, series, bounds)
            case Outcome.REJECTED:
                return self._recorder.reject(queue, series, bounds, row.code, row.text)
            case Outcome.RELEASED | Outcome.FAILED | Outcome.MODIFIED:
                said = Disposition(Outcome(row.outcome), row.code, row.text, row.delay_s, row.attempt)
                return self.give_back(queue, series, bounds, said, tried)
            case Outcome.RECEIVED if queue.leases is not None:
                for one in queue.held_within(series, *bounds):
                    queue.leases.extend(self._state.now, series, *one)
            case _:
                pass  # without a lease there is nothing to extend, and newer clients may know more outcomes
        return []

    # -- events that come back

    def give_back(
        self, queue: Queue, series: Series, bounds: Range, said: Disposition, tried: list[AttemptRow]
    ) -> list[OutcomeRow]:
        """Events come back. Each has its own count of attempts; those without another attempt end."""
        ended: list[OutcomeRow] = []
        attempt = Attempt(self._state.time_us, said.outcome, said.code)
        for low, high in queue.held_within(series, *bounds):
            if said.outcome is Outcome.RELEASED:
                self._state.released += high - low
            for start, stop, before in queue.attempts.pieces(series, low, high):
                count = before or AttemptCount()
                if said.attempt and said.attempt < count.acquired:
                    continue  # about an attempt before the last one: the event was lost to that subscriber since
                is_counted = said.attempt and said.attempt == count.acquired  # on an earlier connection
                if not is_counted:
                    count = _counted(queue, series, (start, stop), count, attempt, tried)
                ended += self._retry_or_end(queue, series, (start, stop), count, said)
        if said.attempt > 1 and queue.unsettled.is_waiting(series):
            ended += self._count_repeated(queue, series, bounds, said, tried)
        return ended

    def _count_repeated(
        self, queue: Queue, series: Series, bounds: Range, said: Disposition, tried: list[AttemptRow]
    ) -> list[OutcomeRow]:
        """Count the attempt after the last one that is known, at events that wait already.

        A subscriber repeats all outcomes that were not confirmed on a new connection. The first one about an event
        gives it back; those behind it are about attempts that were made on the earlier connection, and count too.
        """
        ended: list[OutcomeRow] = []
        attempt = Attempt(self._state.time_us, said.outcome, said.code)
        for low, high in queue.unsettled.waiting_within(series, *bounds):
            for start, stop, before in queue.attempts.pieces(series, low, high):
                if before is not None and said.attempt == before.acquired + 1:
                    count = _counted(queue, series, (start, stop), before, attempt, tried)
                    ended += self._retry_or_end(queue, series, (start, stop), count, said)
        return ended

    def _retry_or_end(
        self, queue: Queue, series: Series, bounds: Range, count: AttemptCount, said: Disposition
    ) -> list[OutcomeRow]:
        """Follow up an attempt that came back: retry after a back-off, or record a dead letter."""
        retry, rule = self._state.rules.retry, self._state.rules.of(series[0])
        if said.outcome.counts and retry.is_never(said.code):
            text = said.text or f"{Code(said.code).name} is never retried"
            return self._recorder.dead_letter(queue, series, bounds, said.code, Reason.REJECTED, text)
        if said.outcome.counts and retry.is_exhausted(count.failed, rule.attempts_max):
            text = f"{count.failed} attempts failed" + (f": {said.text}" if said.text else "")
            reason = Reason.ATTEMPTS_EXHAUSTED
            return self._recorder.dead_letter(queue, series, bounds, said.code, reason, text)
        ended = self._end_overdue(queue, series, bounds)
        delay_s = max(said.delay_s, retry.delay_s(max(count.failed, 1), self._state.rng, said.code))
        for one in queue.unsettled.in_flight_within(series, *bounds):
            self._retry(queue, series, one, self._state.now + delay_s)
        return ended

    def _end_overdue(self, queue: Queue, series: Series, bounds: Range) -> list[OutcomeRow]:
        """The ttl ran out while the subscriber had the event: there is no further attempt."""
        return [
            row
            for one in queue.unsettled.overdue_within(series, *bounds)
            for row in self._recorder.dead_letter(
                queue, series, one, 0, Reason.EXPIRED, EXPIRED_BETWEEN_ATTEMPTS
            )
        ]

    def _retry(self, queue: Queue, series: Series, bounds: Range, due: float) -> None:
        start, stop = bounds
        reached = stop
        if not queue.is_live and self._state.order(queue, series[0]) != "none":
            reached = min(max(queue.cursor.passed_to(series), start), stop)
        if start < reached:
            queue.give_back(series, start, reached, due)
            self._state.queues.schedule(queue)
        if reached < stop:
            queue.give_back_ahead(series, reached, stop)

    # -- leases

    def end_leases(self, queue: Queue) -> None:
        """Take back events that were held for too long without being settled or extended."""
        if queue.leases is None:
            return
        ended: list[OutcomeRow] = []
        tried: list[AttemptRow] = []
        for lease in queue.leases.due(self._state.now):
            for bounds in self._still_held(queue, lease):
                for part in queue.by_holder(lease.series, *bounds):
                    self._state.send(queue.peer, Revoked(queue.sub, *lease.series, *part))
                    said = Disposition(Outcome.LEASE_LOST)
                    ended += self.give_back(queue, lease.series, part, said, tried)
                    queue.lease_lost(self._state.now)
        self._record(queue, ended, tried)

    def _still_held(self, queue: Queue, lease: Lease) -> list[Range]:
        """The parts of a lease that are still with the subscriber, for the same attempt, and were not extended since."""
        assert queue.leases is not None
        held: list[Range] = []
        for low, high in queue.unsettled.in_flight_within(lease.series, lease.start, lease.stop):
            for start, stop, count in queue.attempts.pieces(lease.series, low, high):
                attempt = 1 if count is None else count.acquired + 1
                if lease.attempt not in (0, attempt):
                    continue
                if not queue.leases.has_extended:
                    held.append((start, stop))
                    continue
                now = self._state.now
                held += [
                    (seq, seq + 1)
                    for seq in range(start, stop)
                    if not queue.leases.is_extended(lease.series, seq, now)
                ]
        return held

    # -- members

    def release_held(self, queue: SharedQueue, key: QueueKey) -> None:
        """A member leaves: what it holds waits for the other members, or for those that come."""
        queue.serve(key)
        ended: list[OutcomeRow] = []
        tried: list[AttemptRow] = []
        for series, *bounds in queue.member.held.ranges():
            ended += self.give_back(
                queue, series, (bounds[0], bounds[1]), Disposition(Outcome.RELEASED), tried
            )
        self._record(queue, ended, tried)

    def deliver_rest(self, queue: Queue) -> None:
        """Somebody may have room for what waits."""
        self._redelivery.retry_due(queue)
        self._pump.pump(queue)

    # -- durable

    def confirm(self, number: int) -> None:
        """Records up to this number are durable: confirm the outcomes in them to their subscribers."""
        settled: dict[Recipient, int] = {}
        while self._confirming and self._confirming[0][0] <= number:
            _, recipient, settle_number = self._confirming.popleft()
            settled[recipient] = settle_number
        for recipient, settle_number in settled.items():
            if self._state.queues.is_open(recipient):
                self._state.send(recipient.peer, Settled(recipient.sub, settle_number))


def _counted(
    queue: Queue,
    series: Series,
    bounds: Range,
    before: AttemptCount,
    attempt: Attempt,
    tried: list[AttemptRow],
) -> AttemptCount:
    """Count an attempt; returns the new count."""
    count = before.tried(attempt)
    tried.append(_attempt_row(series, bounds, count, attempt))
    queue.count_attempt(series, *bounds, attempt)
    return count


def _attempt_row(series: Series, bounds: Range, count: AttemptCount, attempt: Attempt) -> AttemptRow:
    counts, outcome = (count.acquired, count.failed), attempt.outcome
    return AttemptRow(*series, *bounds, *counts, outcome, attempt.code, attempt.time_us, count.crashed)

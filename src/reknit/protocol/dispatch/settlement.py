"""Settling: what a subscriber says of events, item by item, and what follows from it.

accept     done
release    queued again, not counted as an attempt that failed
fail       counted, queued again after a back-off; a dead letter when that is of no use
reject     a dead letter
received   still at it: the lease is extended

A lease that ran out is settled here too: as a failure that the subscriber did not tell.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from reknit.attempts import Tally, Try
from reknit.ledger import Stream
from reknit.outcome import Code, Outcome, Reason
from reknit.protocol.dispatch.delivery_pump import Handing
from reknit.protocol.dispatch.expiry import TRIED
from reknit.protocol.dispatch.leases import Held
from reknit.protocol.dispatch.outcome_recorder import Endings
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.redelivery import Asides
from reknit.protocol.dispatch.state import Desk
from reknit.protocol.machine import Peer
from reknit.records import AttemptRow, Attempts, OutcomeRow
from reknit.seqset import Range
from reknit.wire.messages import Revoked, Row, Settle, Settled


class Word(NamedTuple):
    """What was said of events that come back."""

    outcome: Outcome
    code: int = 0
    text: str = ""
    delay_s: float = 0.0
    attempt: int = 0
    """Which attempt it is about; 0: the present one."""


class Settling:
    """Carries out outcomes."""

    def __init__(self, desk: Desk, endings: Endings, handing: Handing, asides: Asides) -> None:
        self._desk = desk
        self._endings = endings
        self._handing = handing
        self._asides = asides
        self._confirming: deque[tuple[int, Queue, int]] = deque()

    def settle(self, message: Settle, peer: Peer) -> None:
        """A subscriber's outcomes. Repeating them changes nothing."""
        desk = self._desk
        queue = desk.queues.get((peer, message.sub))
        if queue is None:
            return
        if message.number > queue.settled:
            queue.settled = message.number
            self._carry_out(queue, message.rows)
        recorded = desk.recorded.get(queue.name, 0)
        if recorded > desk.kept:  # `Settled` speaks for everything before it too
            self._confirming.append((recorded, queue, queue.settled))
        else:
            desk.say(peer, Settled(message.sub, queue.settled))

    def _carry_out(self, queue: Queue, rows: list[Row]) -> None:
        ended: list[OutcomeRow] = []
        tried: list[AttemptRow] = []
        before = queue.in_flight
        for row in rows:
            ended += self._outcome(queue, row, tried)
        self._book(queue, ended, tried)
        if queue.leases is not None:
            queue.leases.settled(self._desk.now, before - queue.in_flight)
        if queue.lanes.is_ready or queue.leases is not None:
            self._asides.again(queue)
            self._handing.pump(queue)

    def _book(self, queue: Queue, ended: list[OutcomeRow], tried: list[AttemptRow]) -> None:
        if queue.is_durable and tried:
            self._desk.recorded[queue.name] = self._desk.append(Attempts(queue.name, tried))
        self._endings.book(queue, ended)

    def _outcome(self, queue: Queue, row: Row, tried: list[AttemptRow]) -> list[OutcomeRow]:
        """Carry out one outcome; gives what ended by it."""
        stream, bounds = (row.topic, row.source), (row.start, row.stop)
        match row.outcome:
            case Outcome.ACCEPTED:
                return self._endings.accept(queue, stream, bounds)
            case Outcome.REJECTED:
                return self._endings.reject(queue, stream, bounds, row.code, row.text)
            case Outcome.RELEASED | Outcome.FAILED | Outcome.MODIFIED:
                word = Word(Outcome(row.outcome), row.code, row.text, row.delay_s, row.attempt)
                return self.give_back(queue, stream, bounds, word, tried)
            case Outcome.RECEIVED if queue.leases is not None:
                for one in queue.at_hand(stream, *bounds):
                    queue.leases.extend(self._desk.now, stream, *one)
            case _:
                pass
        return []

    def give_back(
        self, queue: Queue, stream: Stream, bounds: Range, word: Word, tried: list[AttemptRow]
    ) -> list[OutcomeRow]:
        """Events come back. Each keeps its own count of attempts; those for which it is enough are dead letters."""
        ended: list[OutcomeRow] = []
        one = Try(self._desk.time_us, word.outcome, word.code)
        for low, high in queue.at_hand(stream, *bounds):
            for start, stop, before in queue.alike(stream, low, high):
                tally = before or Tally()
                if word.attempt and word.attempt < tally.acquired:
                    continue  # about an attempt before the last: whoever said it has lost the event since
                if (
                    word.attempt != tally.acquired or not word.attempt
                ):  # else it was counted, on a connection before
                    tally = tally.tried(one)
                    tried.append(self._attempt(stream, (start, stop), tally, one))
                    self._count(queue, stream, (start, stop), one)
                ended += self._go_on(queue, stream, (start, stop), tally, word)
        return ended

    def _count(self, queue: Queue, stream: Stream, bounds: Range, one: Try) -> None:
        tallies = queue.tallies.setdefault(stream, {})
        for seq in range(*bounds):
            tallies[seq] = tallies.get(seq, Tally()).tried(one)

    def _attempt(self, stream: Stream, bounds: Range, tally: Tally, one: Try) -> AttemptRow:
        return AttemptRow(*stream, *bounds, tally.acquired, tally.failed, one.outcome, one.code, one.time_us)

    def _go_on(
        self, queue: Queue, stream: Stream, bounds: Range, tally: Tally, word: Word
    ) -> list[OutcomeRow]:
        """What follows from a failed attempt: another one after a while, or a dead letter."""
        retry, rule = self._desk.rules.retry, self._desk.rules.of(stream[0])
        if word.outcome.counts and retry.is_never(word.code):
            text = word.text or f"{Code(word.code).name} is never retried"
            return self._endings.dead_letter(queue, stream, bounds, word.code, Reason.REJECTED, text)
        if word.outcome.counts and retry.is_exhausted(tally.failed, rule.attempts_max):
            text = f"{tally.failed} attempts failed" + (f": {word.text}" if word.text else "")
            reason = Reason.ATTEMPTS_EXHAUSTED
            return self._endings.dead_letter(queue, stream, bounds, word.code, reason, text)
        ended = self._bury_overdue(queue, stream, bounds)
        delay_s = max(word.delay_s, retry.delay_s(max(tally.failed, 1), self._desk.rng, word.code))
        for low, high in queue.at_hand(stream, *bounds):
            self._wait(queue, stream, low, high, self._desk.now + delay_s)
        return ended

    def _bury_overdue(self, queue: Queue, stream: Stream, bounds: Range) -> list[OutcomeRow]:
        """Its ttl ran out while the subscriber had it: there is no further attempt."""
        overdue = queue.overdue.get(stream)
        return [
            row
            for one in (overdue.overlap(*bounds) if overdue else ())
            for row in self._endings.dead_letter(queue, stream, one, 0, Reason.EXPIRED, TRIED)
        ]

    def _wait(self, queue: Queue, stream: Stream, start: int, stop: int, due: float) -> None:
        queue.wait(stream, start, stop)
        queue.in_flight -= stop - start
        self._desk.backing_off[queue] = None
        loose = range(start, stop)
        if queue.lanes:
            loose_seqs = [seq for seq in loose if not queue.lanes.given_back(stream, seq, due)]
            for seq in loose_seqs:
                queue.put_again(stream, seq, seq + 1, due)
        else:
            queue.put_again(stream, start, stop, due)

    # -- leases

    def end_leases(self, queue: Queue) -> None:
        """Take back what was held for too long without a word."""
        if queue.leases is None:
            return
        ended: list[OutcomeRow] = []
        tried: list[AttemptRow] = []
        for held in queue.leases.due(self._desk.now):
            for low, high in self._lost(queue, held):
                self._desk.say(queue.peer, Revoked(queue.sub, *held.stream, low, high))
                ended += self.give_back(queue, held.stream, (low, high), Word(Outcome.LEASE_LOST), tried)
                queue.leases.lost(self._desk.now)
        self._book(queue, ended, tried)

    def _lost(self, queue: Queue, held: Held) -> list[Range]:
        """What of a lease is still with the subscriber, for the same attempt, and was not extended since."""
        assert queue.leases is not None
        lost: list[Range] = []
        for low, high in queue.at_hand(held.stream, held.start, held.stop):
            for start, stop, tally in queue.alike(held.stream, low, high):
                attempt = 1 if tally is None else tally.acquired + 1
                if held.attempt not in (0, attempt):
                    continue
                if not queue.leases.has_extended:
                    lost.append((start, stop))
                    continue
                now = self._desk.now
                lost += [
                    (seq, seq + 1)
                    for seq in range(start, stop)
                    if not queue.leases.is_extended(held.stream, seq, now)
                ]
        return lost

    # -- durable

    def confirm(self, number: int) -> None:
        """Records up to this number are durable: subscribers whose outcomes they are are told."""
        settled: dict[Queue, int] = {}
        while self._confirming and self._confirming[0][0] <= number:
            _, queue, settle_number = self._confirming.popleft()
            settled[queue] = settle_number
        for queue, settle_number in settled.items():
            if self._desk.queues.get((queue.peer, queue.sub)) is queue:
                self._desk.say(queue.peer, Settled(queue.sub, settle_number))

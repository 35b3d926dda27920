"""Recovered events in the application's hands: their outcomes stay here, as the node never handed them out.

What is accepted is done. What is released or failed is handed out again after its delay, as often and for as long as
the node's rules say. What is rejected, or was tried for the last time, goes to the node, as a dead letter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reknit.backoff import Backoff
from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.ledger import Stream
from reknit.outcome import Outcome, Reason
from reknit.protocol.dispatch.expiry import TRIED
from reknit.protocol.subscribe.retry_rules import Trials
from reknit.seqset import Range, SeqSet

AGAIN: Final = Backoff(0.1, 30.0)
"""How long an event that was given back waits at least."""


class Word(NamedTuple):
    """What the application says of events."""

    outcome: Outcome
    code: int = 0
    text: str = ""
    delay_s: float = 0.0


class Dead(NamedTuple):
    """Events that become dead letters, and why."""

    batch: Batch
    reason: Reason
    code: int
    text: str


class Hands:
    """Recovered batches that the application has and has not settled. `zero_us` is the time of day at `now` 0."""

    def __init__(self, zero_us: int = 0) -> None:
        self.trials = Trials()
        self.dead: list[Dead] = []
        self._zero_us = zero_us
        self._batches: dict[Stream, list[Batch]] = {}
        self._seqs: dict[Stream, SeqSet] = {}
        self._failed: dict[tuple[Stream, int], int] = {}
        """How often events that came back have failed."""
        self._given_back: list[tuple[float, Batch]] = []
        """(delay, batch): since when is known at the next tick."""
        self._again: list[tuple[float, Batch]] = []

    def hand(self, batch: Batch) -> None:
        """A recovered batch goes to the application."""
        stream = (batch.topic, batch.source)
        self._batches.setdefault(stream, []).append(batch)
        self._seqs.setdefault(stream, SeqSet()).add(batch.first, batch.stop)

    def has(self, stream: Stream) -> bool:
        """Whether the application has recovered events of a stream."""
        return stream in self._seqs

    def settle(self, stream: Stream, start: int, stop: int, word: Word) -> list[Range]:
        """The application's word on `[start, stop)`; gives the ranges that were not recovered: the node's."""
        seqs = self._seqs.get(stream)
        if seqs is None:
            return [(start, stop)]
        others = seqs.missing(start, stop)
        for low, high in seqs.overlap(start, stop):
            seqs.discard(low, high)
            if word.outcome is Outcome.REJECTED:
                self._bury(self._cut(stream, low, high), Reason.REJECTED, word.code, word.text)
            elif word.outcome is Outcome.ACCEPTED:
                self._forget(stream, low, high)
            else:
                for part in self._cut(stream, low, high):
                    self._come_back(part, word)
        self._drop_settled(stream, seqs)
        return others

    def _come_back(self, batch: Batch, word: Word) -> None:
        """Events are to be tried again: each has its own count, those with the same go together."""
        stream = (batch.topic, batch.source)
        start = batch.first
        for seq in range(batch.first, batch.stop):
            failed = self._count(stream, seq, word)
            if (
                seq + 1 < batch.stop
                and self._failed.get((stream, seq + 1), 0) + word.outcome.counts == failed
            ):
                continue
            self._try_again(_part(batch, start, seq + 1, batch.attempt), failed, word)
            start = seq + 1

    def _count(self, stream: Stream, seq: int, word: Word) -> int:
        failed = self._failed.get((stream, seq), 0) + word.outcome.counts
        if word.outcome.counts:
            self._failed[stream, seq] = failed
        return failed

    def _try_again(self, part: Batch, failed: int, word: Word) -> None:
        last = self.trials.last(part.topic, failed, word.code) if word.outcome.counts else None
        if last is not None:
            reason, text = last
            why = (
                word.text or text if reason is Reason.REJECTED else ": ".join(filter(None, (text, word.text)))
            )
            self._bury([part], reason, word.code, why)
            return
        again = _part(part, part.first, part.stop, part.attempt + 1)
        self._given_back.append((max(word.delay_s, AGAIN.ceiling_s(max(failed, 1))), again))

    def _bury(self, batches: list[Batch], reason: Reason, code: int, text: str) -> None:
        for batch in batches:
            self._forget((batch.topic, batch.source), batch.first, batch.stop)
            self.dead.append(Dead(batch, reason, code, text))

    def _forget(self, stream: Stream, start: int, stop: int) -> None:
        for seq in range(start, stop) if self._failed else ():
            self._failed.pop((stream, seq), None)

    def _cut(self, stream: Stream, low: int, high: int) -> list[Batch]:
        """`[low, high)` as batches of their own."""
        overlapping = [batch for batch in self._batches[stream] if batch.first < high and low < batch.stop]
        return [_part(batch, low, high, batch.attempt) for batch in overlapping]

    def _drop_settled(self, stream: Stream, seqs: SeqSet) -> None:
        if not seqs:
            del self._seqs[stream], self._batches[stream]
        elif seqs.first >= self._batches[stream][0].stop:
            left = [batch for batch in self._batches[stream] if seqs.overlap(batch.first, batch.stop)]
            self._batches[stream] = left

    def tick(self, now: float) -> list[Batch]:
        """What is to be handed out again by now; what is past its ttl is not."""
        self._again += [(now + delay_s, batch) for delay_s, batch in self._given_back]
        self._given_back = []
        due = [batch for at, batch in self._again if at <= now]
        self._again = [row for row in self._again if row[0] > now]
        again = [part for batch in due for part in self._in_time(batch, self._zero_us + int(now * 1e6))]
        for batch in again:
            self.hand(batch)
        return again

    def _in_time(self, batch: Batch, now_us: int) -> list[Batch]:
        overdue = self.trials.overdue(batch, now_us)
        if not overdue:
            return [batch]
        dead = SeqSet.from_ranges(overdue)
        had = batch.attempt - 1  # there is no other one
        self._bury([_part(batch, *one, had) for one in overdue], Reason.EXPIRED, 0, TRIED)
        return [_part(batch, *one, batch.attempt) for one in dead.missing(batch.first, batch.stop)]

    def next_deadline(self) -> float | None:
        """When something is to be handed out again; 0 where that is not known before the next tick."""
        return 0.0 if self._given_back else min((at for at, _ in self._again), default=None)


def _part(batch: Batch, start: int, stop: int, attempt: int) -> Batch:
    """Some events of a batch as one of their own."""
    return batch.cut(start, stop).delivered(Delivery(attempt, counted=False))

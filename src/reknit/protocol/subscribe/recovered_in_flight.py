"""Recovered events that the application has. Their outcomes stay here, because the node did not deliver them.

An accepted event ends. A released or failed one is delivered again after its delay, as often and for as long as the
node's rules allow. A rejected one, or one that failed for the last time, goes to the node as a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from reknit.backoff import Backoff
from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.ledger import Series
from reknit.outcome import Outcome, Reason
from reknit.protocol.disposition import Disposition
from reknit.protocol.subscribe.retry_rules import RetryRules
from reknit.protocol.ttl import EXPIRED_BETWEEN_ATTEMPTS
from reknit.seqset import Range, SeqSet
from reknit.wire.messages import Handling

RETRY: Final = Backoff(0.1, 30.0)
"""The shortest time that an event waits after it was given back."""


class DeadBatch(NamedTuple):
    """Events that become dead letters, and why."""

    batch: Batch
    reason: Reason
    code: int
    text: str


class RecoveredInFlight:
    """Recovered batches that the application has not settled. `zero_us` is the time of day at `now` 0."""

    def __init__(self, zero_us: int = 0) -> None:
        self.rules = RetryRules()
        self._dead: list[DeadBatch] = []
        self._zero_us = zero_us
        self._batches: dict[Series, list[Batch]] = {}
        self._seqs: dict[Series, SeqSet] = {}
        self._failed: dict[tuple[Series, int], int] = {}
        """How often events that came back have failed."""
        self._given_back: list[tuple[float, Batch]] = []
        """(delay, batch): the delay starts at the next tick."""
        self._scheduled: list[tuple[float, Batch]] = []

    def use_rules(self, handling: Sequence[Handling], never: Sequence[int]) -> None:
        """The node sent its rules."""
        self.rules = RetryRules(handling, never)

    def take_dead(self) -> list[DeadBatch]:
        """The batches that are to become dead letters."""
        dead, self._dead = self._dead, []
        return dead

    def deliver(self, batch: Batch) -> None:
        """A recovered batch goes to the application."""
        series = (batch.topic, batch.source)
        self._batches.setdefault(series, []).append(batch)
        self._seqs.setdefault(series, SeqSet()).add(batch.first, batch.stop)

    def has(self, series: Series) -> bool:
        """Whether the application has recovered events of a series."""
        return series in self._seqs

    def seqs_of(self, series: Series) -> SeqSet:
        """The recovered events of a series that the application has."""
        return self._seqs.get(series, SeqSet())

    def settle(self, series: Series, start: int, stop: int, said: Disposition) -> list[Range]:
        """The application settles `[start, stop)`; returns the parts that the node delivered."""
        seqs = self._seqs.get(series)
        if seqs is None:
            return [(start, stop)]
        others = seqs.missing(start, stop)
        for low, high in seqs.overlap(start, stop):
            seqs.discard(low, high)
            if said.outcome is Outcome.REJECTED:
                self._end_dead(self._cut(series, low, high), Reason.REJECTED, said.code, said.text)
            elif said.outcome is Outcome.ACCEPTED:
                self._forget(series, low, high)
            else:
                for part in self._cut(series, low, high):
                    self._give_back(part, said)
        self._drop_settled(series, seqs)
        return others

    def _give_back(self, batch: Batch, said: Disposition) -> None:
        """Events are to be retried: each has its own count, and those with equal counts stay together."""
        series = (batch.topic, batch.source)
        start = batch.first
        for seq in range(batch.first, batch.stop):
            failed = self._count(series, seq, said)
            if (
                seq + 1 < batch.stop
                and self._failed.get((series, seq + 1), 0) + said.outcome.counts == failed
            ):
                continue
            self._retry(_part(batch, start, seq + 1, batch.attempt), failed, said)
            start = seq + 1

    def _count(self, series: Series, seq: int, said: Disposition) -> int:
        failed = self._failed.get((series, seq), 0) + said.outcome.counts
        if said.outcome.counts:
            self._failed[series, seq] = failed
        return failed

    def _retry(self, part: Batch, failed: int, said: Disposition) -> None:
        last = self.rules.last(part.topic, failed, said.code) if said.outcome.counts else None
        if last is not None:
            reason, text = last
            why = (
                said.text or text if reason is Reason.REJECTED else ": ".join(filter(None, (text, said.text)))
            )
            self._end_dead([part], reason, said.code, why)
            return
        again = _part(part, part.first, part.stop, part.attempt + 1)
        self._given_back.append((max(said.delay_s, RETRY.ceiling_s(max(failed, 1))), again))

    def _end_dead(self, batches: list[Batch], reason: Reason, code: int, text: str) -> None:
        for batch in batches:
            self._forget((batch.topic, batch.source), batch.first, batch.stop)
            self._dead.append(DeadBatch(batch, reason, code, text))

    def _forget(self, series: Series, start: int, stop: int) -> None:
        for seq in range(start, stop) if self._failed else ():
            self._failed.pop((series, seq), None)

    def _cut(self, series: Series, low: int, high: int) -> list[Batch]:
        """`[low, high)` as batches of their own.

        An event that came again is in several batches while other events of these are not settled: the last one counts.
        """
        left, parts = SeqSet.from_ranges([(low, high)]), []
        for batch in reversed(self._batches[series]):
            for bounds in left.overlap(batch.first, batch.stop):
                left.discard(*bounds)
                parts.append(_part(batch, *bounds, batch.attempt))
        return sorted(parts, key=lambda part: part.first)

    def _drop_settled(self, series: Series, seqs: SeqSet) -> None:
        if not seqs:
            del self._seqs[series], self._batches[series]
        elif seqs.first >= self._batches[series][0].stop:
            left = [batch for batch in self._batches[series] if seqs.overlap(batch.first, batch.stop)]
            self._batches[series] = left

    def tick(self, now: float) -> list[Batch]:
        """The batches that are due again. Events past their ttl become dead letters instead."""
        self._scheduled += [(now + delay_s, batch) for delay_s, batch in self._given_back]
        self._given_back = []
        due = [batch for at, batch in self._scheduled if at <= now]
        self._scheduled = [row for row in self._scheduled if row[0] > now]
        again = [part for batch in due for part in self._in_time(batch, self._zero_us + int(now * 1e6))]
        for batch in again:
            self.deliver(batch)
        return again

    def _in_time(self, batch: Batch, now_us: int) -> list[Batch]:
        overdue = self.rules.overdue(batch, now_us)
        if not overdue:
            return [batch]
        dead = SeqSet.from_ranges(overdue)
        attempts = batch.attempt - 1  # there is no further one
        self._end_dead(
            [_part(batch, *one, attempts) for one in overdue], Reason.EXPIRED, 0, EXPIRED_BETWEEN_ATTEMPTS
        )
        return [_part(batch, *one, batch.attempt) for one in dead.missing(batch.first, batch.stop)]

    def next_deadline(self) -> float | None:
        """When something is due again; 0 if that is not known before the next tick."""
        return 0.0 if self._given_back else min((at for at, _ in self._scheduled), default=None)


def _part(batch: Batch, start: int, stop: int, attempt: int) -> Batch:
    """Some events of a batch as a batch of their own."""
    return batch.cut(start, stop).delivered(Delivery(attempt, counted=False))

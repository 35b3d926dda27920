"""Recovered events in the application's hands: their outcomes stay here, as the node never handed them out.

What is accepted is done. What is released or failed is handed out again after its delay. What is rejected goes to the
node, as a dead letter.
"""

from __future__ import annotations

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.seqset import Range, SeqSet

AGAIN_S = 0.1
"""How long an event that was given back waits at least."""


class Hands:
    """Recovered batches that the application has and has not settled."""

    def __init__(self) -> None:
        self._batches: dict[Stream, list[Batch]] = {}
        self._seqs: dict[Stream, SeqSet] = {}
        self._given_back: list[tuple[float, Batch]] = []
        """(delay, batch): since when is known at the next tick."""
        self._again: list[tuple[float, Batch]] = []
        self.rejected: list[Batch] = []

    def hand(self, batch: Batch) -> None:
        """A recovered batch goes to the application."""
        stream = (batch.topic, batch.source)
        self._batches.setdefault(stream, []).append(batch)
        self._seqs.setdefault(stream, SeqSet()).add(batch.first, batch.stop)

    def settle(self, stream: Stream, start: int, stop: int, outcome: Outcome, delay_s: float) -> list[Range]:
        """The application's word on `[start, stop)`; gives the ranges that were not recovered: the node's."""
        seqs = self._seqs.get(stream)
        if seqs is None:
            return [(start, stop)]
        others = seqs.missing(start, stop)
        for low, high in seqs.overlap(start, stop):
            seqs.discard(low, high)
            if outcome is Outcome.REJECTED:
                self.rejected += self._cut(stream, low, high)
            elif outcome is not Outcome.ACCEPTED:
                self._give_back(stream, low, high, max(delay_s, AGAIN_S))
        self._drop_settled(stream, seqs)
        return others

    def _give_back(self, stream: Stream, low: int, high: int, delay_s: float) -> None:
        for again in self._cut(stream, low, high):
            again.attempt += 1
            self._given_back.append((delay_s, again))

    def _cut(self, stream: Stream, low: int, high: int) -> list[Batch]:
        """`[low, high)` as batches of their own."""
        parts: list[Batch] = []
        for batch in self._batches[stream]:
            if batch.first < high and low < batch.stop:
                part = batch.cut(low, high) if batch.count > 1 else Batch(batch.head, batch.data)
                part.attempt, part.counted = batch.attempt, False
                parts.append(part)
        return parts

    def _drop_settled(self, stream: Stream, seqs: SeqSet) -> None:
        if not seqs:
            del self._seqs[stream], self._batches[stream]
        elif seqs.first >= self._batches[stream][0].stop:
            left = [batch for batch in self._batches[stream] if seqs.overlap(batch.first, batch.stop)]
            self._batches[stream] = left

    def tick(self, now: float) -> list[Batch]:
        """What is to be handed out again by now."""
        self._again += [(now + delay_s, batch) for delay_s, batch in self._given_back]
        self._given_back = []
        due = [batch for at, batch in self._again if at <= now]
        self._again = [row for row in self._again if row[0] > now]
        return due

    def next_deadline(self) -> float | None:
        """When something is to be handed out again; 0 where that is not known before the next tick."""
        return 0.0 if self._given_back else min((at for at, _ in self._again), default=None)

"""What an application saw, from the outside: every batch, outcome, revocation and report of loss.

It complains at once about an event that comes twice, out of order, after its end, or with an unreported gap before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.protocol.subscribe.subscriber import Report
from reknit.seqset import SeqSet
from reknit.testing.clock import Clock
from reknit.topic import Pattern


class Observer(Protocol):
    """Collects complaints, and knows what was published. `Witness` is one."""

    clock: Clock

    def blame(self, problem: str) -> None:
        """Record a problem."""

    def check_known(self, name: str, batch: Batch) -> None:
        """Complain about events that nobody published."""


class ObservedSubscriber:
    """What one subscriber's application saw: a durable one over all its lives, an ephemeral one in its only life."""

    def __init__(
        self, name: str, node: str, pattern: str, durable: bool, history: bool, observer: Observer
    ) -> None:
        self.name = name
        self.node = node
        self.pattern = Pattern(pattern)
        self.durable = durable
        self.history = history
        self.opened_at: float | None = None
        """When its subscription was first confirmed: from then on it is owed everything."""
        self.is_alive = True
        self.is_forgotten = False
        """It asked to be forgotten; nobody knows whether it was heard."""
        self.ever: dict[Stream, SeqSet] = {}
        self.said: dict[Outcome, dict[Stream, SeqSet]] = {outcome: {} for outcome in Outcome}
        self.failed: dict[Stream, dict[int, int]] = {}
        """How often it said of an event that it failed."""
        self.lost: dict[Stream, SeqSet] = {}
        self._ended: dict[Stream, SeqSet] = {}
        self._in_hand: dict[Stream, SeqSet] = {}
        self._next: dict[Stream, int] = {}
        self._observer = observer

    def opened(self) -> None:
        if self.opened_at is None:
            self.opened_at = self._observer.clock.now

    def crashed(self) -> None:
        """The process is gone with all that it knew."""
        self.is_alive = False
        self._in_hand.clear()
        self._next.clear()

    def handed(self, batch: Batch) -> None:
        """The application got a batch."""
        stream, bounds = (batch.topic, batch.source), (batch.first, batch.stop)
        self._observer.check_known(self.name, batch)
        self._blame(stream, overlap(self._ended, stream, bounds), "came again after its end was booked")
        self._blame(stream, overlap(self._in_hand, stream, bounds), "came twice to one process")
        expected = self._next.get(stream, batch.first)
        if batch.attempt == 1 and batch.first < expected and not (batch.ordered_to and self.durable):
            self._blame(stream, [(batch.first, min(batch.stop, expected))], f"came after {expected - 1}")
        if not self.durable and batch.first > expected:
            gap = self.lost.get(stream, SeqSet()).missing(expected, batch.first)
            self._blame(stream, gap, "is missing, and was not reported as lost")
        self._next[stream] = max(expected, batch.stop)
        self._in_hand.setdefault(stream, SeqSet()).add(*bounds)
        self.ever.setdefault(stream, SeqSet()).add(*bounds)

    def settled(self, stream: Stream, start: int, stop: int, outcome: Outcome) -> None:
        """The application said what became of events."""
        self.said[outcome].setdefault(stream, SeqSet()).add(start, stop)
        if outcome is Outcome.FAILED:
            counts = self.failed.setdefault(stream, {})
            counts.update({seq: counts.get(seq, 0) + 1 for seq in range(start, stop)})
        if not outcome.is_final:
            self._in_hand.setdefault(stream, SeqSet()).discard(start, stop)

    def revoked(self, stream: Stream, start: int, stop: int) -> None:
        """Its lease ran out: it may come again, and that counts as a failure."""
        self.said[Outcome.LEASE_LOST].setdefault(stream, SeqSet()).add(start, stop)
        self._in_hand.setdefault(stream, SeqSet()).discard(start, stop)

    def booked(self, stream: Stream, start: int, stop: int) -> None:
        """The node promised to remember that these have ended."""
        self._ended.setdefault(stream, SeqSet()).add(start, stop)

    def reported_lost(self, report: Report) -> None:
        self.lost.setdefault((report.topic, report.source), SeqSet()).add(report.start, report.stop)

    def _blame(self, stream: Stream, ranges: Iterable[tuple[int, int]], what: str) -> None:
        for start, stop in ranges:
            self._observer.blame(f"{self.name}: {name_of(stream)} [{start}, {stop}) {what}")


def name_of(stream: Stream) -> str:
    """A series as a trace shows it."""
    return f"{stream[0]} of {stream[1].rstrip(b'_').decode(errors='replace')}"


def overlap(sets: dict[Stream, SeqSet], stream: Stream, bounds: tuple[int, int]) -> list[tuple[int, int]]:
    """The ranges within `bounds` that a series' set already holds."""
    seqs = sets.get(stream)
    return [] if seqs is None else seqs.overlap(*bounds)

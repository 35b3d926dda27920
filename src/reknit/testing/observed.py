"""A subscriber's application, observed from the outside: every batch, outcome, revocation and report of loss.

A problem is reported at once when an event arrives twice, out of order, after its outcome, or with an unreported gap
before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.outcome import Outcome
from reknit.protocol.subscribe.subscriber import LossReport
from reknit.seqset import SeqSet
from reknit.testing.clock import Clock
from reknit.topic import Pattern


class Observer(Protocol):
    """Collects problems, and knows what was published. `Witness` is one."""

    clock: Clock

    def blame(self, problem: str) -> None:
        """Record a problem."""

    def check_known(self, name: str, batch: Batch) -> None:
        """Report events that nobody published."""


@dataclass(frozen=True, slots=True)
class SubscriberKind:
    """The options with which a subscriber subscribed."""

    node: str
    pattern: Pattern
    durable: bool
    history: bool


class ObservedSubscriber:
    """Everything one subscriber's application saw: over all runs if durable, in its only run if ephemeral."""

    def __init__(self, name: str, kind: SubscriberKind, observer: Observer) -> None:
        self.name = name
        self.kind = kind
        self.opened_at: float | None = None
        """When its subscription was first confirmed: from then on it is owed every event."""
        self.is_alive = True
        self.is_forgotten = False
        """It asked to be forgotten, and the node has not confirmed that yet."""
        self.received: dict[Series, SeqSet] = {}
        self.said: dict[Outcome, dict[Series, SeqSet]] = {outcome: {} for outcome in Outcome}
        self.failed: dict[Series, dict[int, int]] = {}
        """How often it reported an event as failed, by seq."""
        self.lost: dict[Series, SeqSet] = {}
        self._ended: dict[Series, SeqSet] = {}
        self._held: dict[Series, SeqSet] = {}
        """Events that the process has received and not returned."""
        self._next: dict[Series, int] = {}
        self._observer = observer

    # -- life

    def started(self) -> None:
        """A process runs under this name."""
        self.is_alive = True

    def opened(self) -> None:
        """Its subscription was confirmed."""
        if self.opened_at is None:
            self.opened_at = self._observer.clock.now

    def crashed(self) -> None:
        """Its process ended, with all that it knew."""
        self.is_alive = False
        self._held.clear()
        self._next.clear()

    def asked_to_be_forgotten(self) -> None:
        """It unsubscribed with `forget`. Until the node confirms that, the subscriber may be forgotten or not."""
        self.is_forgotten = True

    # -- events

    def delivered(self, batch: Batch) -> None:
        """The application received a batch."""
        series, bounds = (batch.topic, batch.source), (batch.first, batch.stop)
        self._observer.check_known(self.name, batch)
        self._blame(series, overlap(self._ended, series, bounds), "came again after its outcome was stored")
        self._blame(series, overlap(self._held, series, bounds), "came twice to one process")
        expected = self._next.get(series, batch.first)
        if batch.attempt == 1 and batch.first < expected and not (batch.ordered_to and self.kind.durable):
            self._blame(series, [(batch.first, min(batch.stop, expected))], f"came after {expected - 1}")
        if not self.kind.durable and batch.first > expected:
            gap = self.lost.get(series, SeqSet()).missing(expected, batch.first)
            self._blame(series, gap, "is missing, and was not reported as lost")
        self._next[series] = max(expected, batch.stop)
        self._held.setdefault(series, SeqSet()).add(*bounds)
        self.received.setdefault(series, SeqSet()).add(*bounds)

    def settled(self, series: Series, start: int, stop: int, outcome: Outcome) -> None:
        """The application settled events."""
        self.said[outcome].setdefault(series, SeqSet()).add(start, stop)
        if outcome is Outcome.FAILED:
            counts = self.failed.setdefault(series, {})
            counts.update({seq: counts.get(seq, 0) + 1 for seq in range(start, stop)})
        if not outcome.is_final:
            self._held.setdefault(series, SeqSet()).discard(start, stop)

    def revoked(self, series: Series, start: int, stop: int) -> None:
        """Leases ran out: the events may come again, and that counts as a failure."""
        self.said[Outcome.LEASE_LOST].setdefault(series, SeqSet()).add(start, stop)
        self._held.setdefault(series, SeqSet()).discard(start, stop)

    def outcome_stored(self, series: Series, start: int, stop: int) -> None:
        """The node confirmed that it has stored the outcome of events."""
        self._ended.setdefault(series, SeqSet()).add(start, stop)

    def reported_lost(self, report: LossReport) -> None:
        """The subscriber was told that events are lost."""
        self.lost.setdefault((report.topic, report.source), SeqSet()).add(report.start, report.stop)

    def _blame(self, series: Series, ranges: Iterable[tuple[int, int]], what: str) -> None:
        for start, stop in ranges:
            self._observer.blame(f"{self.name}: {name_of(series)} [{start}, {stop}) {what}")


def name_of(series: Series) -> str:
    """A series as a trace shows it."""
    return f"{series[0]} of {series[1].rstrip(b'_').decode(errors='replace')}"


def overlap(sets: dict[Series, SeqSet], series: Series, bounds: tuple[int, int]) -> list[tuple[int, int]]:
    """The ranges within `bounds` that a series' set already holds."""
    seqs = sets.get(series)
    return [] if seqs is None else seqs.overlap(*bounds)

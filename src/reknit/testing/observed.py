"""A subscriber's application, observed from the outside: every batch, outcome, revocation and report of loss.

Problems are reported at once; the checks are in `checks/deliveries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.outcome import Outcome
from reknit.protocol.subscribe.subscriber import LossReport
from reknit.seqset import SeqSet
from reknit.testing.checks.deliveries import EACH_DELIVERY, EACH_LOSS, ApplicationRecord, DeliveryCheck
from reknit.testing.clock import Clock
from reknit.topic import Pattern


class Observer(Protocol):
    """Collects problems, and knows what was published. `Witness` is one."""

    clock: Clock

    def blame(self, problem: str) -> None:
        """Record a problem."""

    def check_batch(self, seen: ObservedSubscriber, batch: Batch) -> None:
        """Report events that nobody published, or that must not be delivered now."""

    def ended_at(self, seen: ObservedSubscriber, series: Series) -> SeqSet:
        """The events of a series that its node has ended for a subscriber."""

    def check_stored(self, seen: ObservedSubscriber, series: Series, start: int, stop: int) -> None:
        """Report events whose outcome was confirmed, and is not stored."""

    def check_attempts(self, seen: ObservedSubscriber, series: Series, seq: int, failed: int) -> None:
        """Report an event that was tried too often."""


@dataclass(frozen=True, slots=True)
class SubscriberKind:
    """The options with which a subscriber subscribed."""

    node: str
    pattern: Pattern
    durable: bool
    history: bool


class ObservedSubscriber:
    """Everything one subscriber's application saw: over all runs if durable, in its only run if ephemeral."""

    checks: ClassVar[tuple[DeliveryCheck, ...]] = EACH_DELIVERY
    """The checks of every batch that it gets."""

    def __init__(self, name: str, kind: SubscriberKind, observer: Observer) -> None:
        self.name = name
        self.kind = kind
        self.opened_at: float | None = None
        """When its subscription was first confirmed: from then on it is owed every event."""
        self.is_alive = True
        self.is_forgotten = False
        """It asked to be forgotten, and the node has not confirmed that yet."""
        self.record = ApplicationRecord(kind.durable, dead=lambda series: observer.ended_at(self, series))
        self.said: dict[Outcome, dict[Series, SeqSet]] = {outcome: {} for outcome in Outcome}
        self.failed: dict[Series, dict[int, int]] = {}
        """How often it reported an event as failed, by seq."""
        self.deaths: dict[Series, dict[int, int]] = {}
        """How often its process died of an event, by seq."""
        self.crashed_at: list[float] = []
        """When a process of it ended without a word."""
        self.failures_stored: dict[Series, dict[int, int]] = {}
        """How many of these the node has confirmed."""
        self.missing: dict[Series, SeqSet] = {}
        """Events whose delivery got lost."""
        self.told: dict[Series, SeqSet] = {}
        """Events that it was told are lost, in any of its processes."""
        self._unstored: list[tuple[int, LossReport]] = []
        """By the number of its message to the node: losses that the node may not know yet to be told."""
        self.observer = observer

    @property
    def account(self) -> ObservedSubscriber:
        """Whose events these are in the ledger: its own, or those of the queue that it shares."""
        return self

    # -- life

    def started(self) -> None:
        """A process runs under this name."""
        self.is_alive = True

    def opened(self) -> None:
        """Its subscription was confirmed."""
        if self.opened_at is None:
            self.opened_at = self.observer.clock.now

    def ended(self, has_left: bool) -> None:
        """Its process ended, with all that it knew; `has_left`: after its node confirmed that it unsubscribed."""
        self.is_alive = False
        self.crashed_at += [] if has_left else [self.observer.clock.now]
        self.record.process_ended()
        for _, report in self._unstored:  # the next process has to be told as well
            self.record.lost[report.topic, report.source].discard(report.start, report.stop)
        self._unstored.clear()

    def asked_to_be_forgotten(self) -> None:
        """It unsubscribed with `forget`. Until the node confirms that, the subscriber may be forgotten or not."""
        self.is_forgotten = True

    # -- events

    def delivered(self, batch: Batch) -> None:
        """The application received a batch."""
        self.observer.check_batch(self.account, batch)
        for check in self.checks:
            for problem in check(self.record, batch):
                self.observer.blame(f"{self.name}: {problem}")
        self.record.delivered(batch)

    def missed(self, series: Series, start: int, stop: int) -> None:
        """A delivery got lost. Nobody can know that before a later event of its series comes."""
        self.missing.setdefault(series, SeqSet()).add(start, stop)

    def missing_at_the_end(self, series: Series) -> SeqSet:
        """The events that got lost after the last one that came."""
        last = self.record.next.get(series, 0)
        return SeqSet.from_ranges(self.missing.get(series, SeqSet()).overlap(last, 1 << 62))

    def settled(self, series: Series, start: int, stop: int, outcome: Outcome) -> None:
        """The application settled events."""
        self.said[outcome].setdefault(series, SeqSet()).add(start, stop)
        if outcome is Outcome.FAILED:
            _count(self.failed, series, start, stop)
        if outcome.is_final:
            self.record.end(series, start, stop)
        else:
            self.record.gave_back(series, start, stop)

    def died_of(self, series: Series, seq: int) -> None:
        """Its process is about to die of an event."""
        _count(self.deaths, series, seq, seq + 1)

    def revoked(self, series: Series, start: int, stop: int) -> None:
        """Leases ran out: the events may come again, and that counts as a failure."""
        self.said[Outcome.LEASE_LOST].setdefault(series, SeqSet()).add(start, stop)
        self.record.lost_lease(series, start, stop)

    def outcome_stored(self, series: Series, start: int, stop: int, outcome: Outcome) -> None:
        """The node confirmed that it has stored the outcome of events."""
        if outcome.is_final:
            self.record.ended.setdefault(series, SeqSet()).add(start, stop)
            self.observer.check_stored(self.account, series, start, stop)
        elif outcome is Outcome.FAILED and self.kind.durable:
            _count(self.failures_stored, series, start, stop)
            for seq in range(start, stop):
                self.observer.check_attempts(self.account, series, seq, self.failures_stored[series][seq])

    def losses_stored(self, number: int) -> None:
        """The node has stored what the subscriber told it up to this message: of which losses it knows."""
        self._unstored = [row for row in self._unstored if row[0] > number]

    def reported_lost(self, report: LossReport, number: int) -> None:
        """The subscriber was told that events are lost; the message with this number tells its node that it knows."""
        if self.kind.durable:
            self._unstored.append((number, report))
        for check in EACH_LOSS:
            for problem in check(self.record, report):
                self.observer.blame(f"{self.name}: {problem}")
        series = (report.topic, report.source)
        self.record.lost.setdefault(series, SeqSet()).add(report.start, report.stop)
        self.told.setdefault(series, SeqSet()).add(report.start, report.stop)
        self.record.end(series, report.start, report.stop)


def _count(counts: dict[Series, dict[int, int]], series: Series, start: int, stop: int) -> None:
    by_seq = counts.setdefault(series, {})
    by_seq.update({seq: by_seq.get(seq, 0) + 1 for seq in range(start, stop)})

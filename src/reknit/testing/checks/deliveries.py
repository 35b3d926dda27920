"""Checks of single deliveries: made when an application gets a batch, settles one, or is told of a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.subscribe.subscriber import LossReport
from reknit.seqset import Range, SeqSet
from reknit.testing.checks.promise import promise
from reknit.topic import Pattern

Seqs = dict[Series, SeqSet]
DEAD_LETTER_TOPIC: Final = "reknit/dead-letters"


@dataclass(slots=True)
class ApplicationRecord:
    """What one application saw: over all its processes, or in the present one."""

    is_durable: bool
    received: Seqs = field(default_factory=dict)
    ended: Seqs = field(default_factory=dict)
    """Events whose outcome the node has stored."""
    lost: Seqs = field(default_factory=dict)
    held: Seqs = field(default_factory=dict)
    """Events that the present process has, and did not give back."""
    returned: Seqs = field(default_factory=dict)
    """Events that the present process gave back, or lost with its lease, and that did not come again."""
    finished: Seqs = field(default_factory=dict)
    """Events that the present process ended."""
    dead: Callable[[Series], SeqSet] = lambda series: SeqSet()
    """Says which events of a series the node has ended by now."""
    units: dict[Series, tuple[int, int]] = field(default_factory=dict)
    """By series of an ordered topic: end and attempt of the unit that was delivered last."""
    next: dict[Series, int] = field(default_factory=dict)
    """By series: the seq after the last one that came to the present process."""
    next_at_crash: dict[Series, int] = field(default_factory=dict)
    """The same when the node crashed last."""

    def process_ended(self) -> None:
        """Forget what the present process knew."""
        for seqs in (self.held, self.returned, self.finished, self.units, self.next, self.next_at_crash):
            seqs.clear()

    def node_crashed(self) -> None:
        """Its node forgot what was not durable."""
        self.next_at_crash = dict(self.next)

    def may_be_late(self, series: Series) -> SeqSet:
        """The events that a durable subscriber's node had passed over before it crashed: they may have to come.

        It ends events itself where a queue is full, and delivers those behind them before that is durable.
        """
        passed = SeqSet.from_ranges([(1, self.next_at_crash.get(series, 1))] if self.is_durable else [])
        for seqs in (self.held, self.returned, self.finished):
            passed = passed.difference(seqs.get(series, SeqSet()))
        return passed

    def delivered(self, batch: Batch) -> None:
        """A batch came."""
        series, bounds = (batch.topic, batch.source), (batch.first, batch.stop)
        self.next[series] = max(self.next.get(series, batch.first), batch.stop)
        self.units[series] = (batch.ordered_to, batch.attempt)
        for seqs in (self.held, self.received):
            seqs.setdefault(series, SeqSet()).add(*bounds)
        for seqs in (self.returned, self.finished):
            if series in seqs:
                seqs[series].discard(*bounds)

    def gave_back(self, series: Series, start: int, stop: int) -> None:
        """Events are to come again."""
        self.held.setdefault(series, SeqSet()).discard(start, stop)
        self.returned.setdefault(series, SeqSet()).add(start, stop)

    def lost_lease(self, series: Series, start: int, stop: int) -> None:
        """Events may come again, except for those that the process ended: its outcome is on its way."""
        self.held.setdefault(series, SeqSet()).discard(start, stop)
        for bounds in self.finished.get(series, SeqSet()).missing(start, stop):
            self.returned.setdefault(series, SeqSet()).add(*bounds)

    def end(self, series: Series, start: int, stop: int) -> None:
        """Events will not come again: the application ended them, or they are lost."""
        self.finished.setdefault(series, SeqSet()).add(start, stop)
        if series in self.returned:
            self.returned[series].discard(start, stop)


DeliveryCheck = Callable[[ApplicationRecord, Batch], Iterator[str]]


@promise("An event does not come again after the node has confirmed its outcome.")
def ended_events_stay_away(record: ApplicationRecord, batch: Batch) -> Iterator[str]:
    yield from _named(batch, overlap(record.ended, batch), "came again after its outcome was stored")


@promise("A process gets no event twice, unless it gave it back or lost its lease.")
def no_event_comes_twice(record: ApplicationRecord, batch: Batch) -> Iterator[str]:
    yield from _named(batch, overlap(record.held, batch), "came twice to one process")


@promise(
    "The events of a source come in the order of their seqs, except for those that are tried again, "
    "and those that a durable subscriber's node had passed over when it crashed."
)
def sources_keep_their_order(record: ApplicationRecord, batch: Batch) -> Iterator[str]:
    expected = record.next.get((batch.topic, batch.source), batch.first)
    is_retried = batch.attempt > 1 or (batch.ordered_to and record.is_durable)
    if batch.first < expected and not is_retried:
        allowed = record.may_be_late((batch.topic, batch.source))
        late = allowed.missing(batch.first, min(batch.stop, expected))
        yield from _named(batch, late, f"came after {expected - 1}")


@promise("A subscriber without a name is told of every gap before the events behind it.")
def gaps_are_reported(record: ApplicationRecord, batch: Batch) -> Iterator[str]:
    series = (batch.topic, batch.source)
    expected = record.next.get(series, batch.first)
    if not record.is_durable and batch.first > expected:
        gap = record.lost.get(series, SeqSet()).missing(expected, batch.first)
        yield from _named(batch, gap, "is missing, and was not reported as lost")


@promise("On an ordered topic nothing overtakes an event that is to be tried again.")
def retried_events_are_not_overtaken(record: ApplicationRecord, batch: Batch) -> Iterator[str]:
    series, unit = (batch.topic, batch.source), (batch.ordered_to, batch.attempt)
    # The rest of a unit may be on its way when the application gives back the first part of it.
    if batch.ordered_to and record.is_durable and record.units.get(series) != unit:
        returned = record.returned.get(series, SeqSet())
        overtaken = SeqSet.from_ranges(returned.overlap(0, batch.first))
        left = overtaken.difference(record.dead(series)).ranges() if overtaken else []
        yield from _named(batch, left, f"is to be tried again, and was overtaken by {batch.first}")


@promise("An event does not come after it was reported as lost.")
def lost_events_stay_away(record: ApplicationRecord, batch: Batch) -> Iterator[str]:
    yield from _named(batch, overlap(record.lost, batch), "came after it was reported as lost")


EACH_DELIVERY = (
    lost_events_stay_away,
    ended_events_stay_away,
    no_event_comes_twice,
    sources_keep_their_order,
    gaps_are_reported,
    retried_events_are_not_overtaken,
)
"""The checks of every batch that an application gets."""


@promise(
    "A loss is reported once, or again to the next process if a durable subscriber's node was not told of it."
)
def losses_are_reported_once(record: ApplicationRecord, report: LossReport) -> Iterator[str]:
    lost = record.lost.get((report.topic, report.source), SeqSet())
    for start, stop in lost.overlap(report.start, report.stop):
        yield f"{name_of((report.topic, report.source))} [{start}, {stop}) was reported as lost twice"


@promise("A subscriber without a name is told of a loss after the events before it.")
def losses_come_in_their_place(record: ApplicationRecord, report: LossReport) -> Iterator[str]:
    series = (report.topic, report.source)
    expected = record.next.get(series, report.start)
    if not record.is_durable and expected < report.start:
        for start, stop in record.lost.get(series, SeqSet()).missing(expected, report.start):
            yield f"{name_of(series)} [{start}, {stop}) was overtaken by the loss of {report.start}"


@promise("A subscriber that recovers loses no event that a cache has.")
def nothing_recoverable_is_lost(report: LossReport, held: SeqSet) -> Iterator[str]:
    """This holds while the node can be asked; `held` are the events of the series that it has."""
    for start, stop in held.overlap(report.start, report.stop):
        yield f"{name_of((report.topic, report.source))} [{start}, {stop}) was reported as lost, and its node has it"


EACH_LOSS = (losses_are_reported_once, losses_come_in_their_place)
"""The checks of every report of a loss."""


@promise(
    "An event that a subscriber without a name gave back comes again, or ends as a dead letter or a loss."
)
def returned_events_came(record: ApplicationRecord, lettered: Callable[[Series], SeqSet]) -> Iterator[str]:
    """At rest; `lettered` says which events of a series have a dead letter."""
    for series, seqs in record.returned.items():
        if series[0] == DEAD_LETTER_TOPIC:
            continue  # there is no dead letter of a dead letter
        for start, stop in seqs.difference(lettered(series)).ranges():
            yield f"{name_of(series)} [{start}, {stop}) was given back, and did not come again"


@promise("Events of a paused topic are not delivered.")
def paused_topics_are_silent(
    batch: Batch, paused: Mapping[Pattern, float], now: float, late_s: float
) -> Iterator[str]:
    """`paused` has the time from which on each pattern was paused; a delivery takes at most `late_s`."""
    for pattern, since in paused.items():
        if now > since + late_s and pattern.matches(batch.topic):
            yield from _named(batch, [(batch.first, batch.stop)], f"came while {pattern.text} was paused")


@promise("An event is not delivered to a durable subscriber after its ttl.")
def expired_events_stay_away(batch: Batch, now_us: int, late_s: float) -> Iterator[str]:
    """A delivery takes at most `late_s`."""
    head = batch.head
    if not head.ttl_ms:
        return
    ttls_ms = batch.columns().get("ttl", [head.ttl_ms] * batch.count)
    for seq, ttl_ms in enumerate(ttls_ms, batch.first):
        if now_us > head.time_us + ttl_ms * 1000 + late_s * 1e6:
            yield from _named(batch, [(seq, seq + 1)], "came after its ttl")


@promise("An event is tried no more often than configured.")
def attempts_are_limited(series: Series, seq: int, failed: int, attempts_max: int) -> Iterator[str]:
    """`failed` is how many failed attempts the node has confirmed."""
    if 0 < attempts_max < failed:
        yield f"{name_of(series)} {seq} was tried {failed} times, and attempts_max is {attempts_max}"


@promise("A subscriber gets no more than its credit and one batch.")
def credit_is_kept(sizes: Sequence[int], credit_bytes: float) -> Iterator[str]:
    """`sizes` are those of the batches that the application has not taken, the one that came last at the end."""
    before = sum(sizes[:-1])
    if before >= credit_bytes:
        yield f"{before} bytes waited in a window of {credit_bytes}, and another batch came"


def _named(batch: Batch, ranges: Iterable[Range], what: str) -> Iterator[str]:
    for start, stop in ranges:
        yield f"{name_of((batch.topic, batch.source))} [{start}, {stop}) {what}"


def name_of(series: Series) -> str:
    """A series as a trace shows it."""
    return f"{series[0]} of {series[1].rstrip(b'_').decode(errors='replace')}"


def overlap(sets: Seqs, batch: Batch) -> list[Range]:
    """The ranges of a batch that a series' set already holds."""
    seqs = sets.get((batch.topic, batch.source))
    return [] if seqs is None else seqs.overlap(batch.first, batch.stop)

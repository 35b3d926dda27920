"""The ledger: published = accepted + dead-lettered + lost + in flight, for every topic and durable subscriber.

Both sides are ranges. A `SeqSet` per series has the published events; a `SeqSet` per (subscriber, series, final outcome)
has the events that ended. The ledger's size grows with the number of sources, not of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from reknit.attempts import TRIES_MAX, Attempt, AttemptCount
from reknit.ledger_rows import LedgerRow as LedgerRow
from reknit.ledger_rows import RowSum
from reknit.outcome import FinalOutcome
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern

Series = tuple[str, bytes]
"""(topic, source): the events of one source on one topic, which have their own seqs without gaps."""
Held = Callable[[Series], SeqSet]
"""The events of a series that a subscriber has in flight."""
STEP_SERIES: Final = 500
"""How many series are added up before a walk through the ledger lets others go on."""
GROUP_SERIES: Final = 5_000
"""The same for sorting series by topic, which is quicker."""
_NOTHING: Final = SeqSet()
ANYCAST: Final = "anycast/"
"""Accounts with this prefix belong to no subscriber: anycast delivers their events."""
COPIES: Final = ("relay/", "route/")
"""Accounts with these prefixes belong to a relay or a bridge, which copies events to another node."""


@dataclass(slots=True)
class Account:
    """The events that one durable subscriber is owed, and their outcomes."""

    name: str
    pattern: Pattern
    since: dict[Series, int]
    """The first owed seq of series that existed before the subscriber. Any other series is owed from seq 1."""
    floor: int
    """The journal position before which everything owed has ended."""
    ends: dict[Series, dict[FinalOutcome, SeqSet]] = field(default_factory=dict)
    tallies: dict[Series, dict[int, AttemptCount]] = field(default_factory=dict)
    """The attempts at events that came back and have not ended yet."""

    def ended(self, series: Series) -> SeqSet:
        """Every seq of the series that has ended, with any outcome."""
        total = SeqSet()
        for seqs in self.ends.get(series, {}).values():
            total = total.union(seqs)
        return total

    def settle(self, series: Series, start: int, stop: int, end: FinalOutcome) -> list[Range]:
        """Enter an outcome for `[start, stop)`. An event ends once: returns the ranges that had not ended before."""
        ends = self.ends.setdefault(series, {})
        fresh = [(start, stop)]
        for seqs in ends.values():
            fresh = [part for low, high in fresh for part in seqs.missing(low, high)]
        for low, high in fresh:
            ends.setdefault(end, SeqSet()).add(low, high)
        return fresh

    def open_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are owed and have not ended."""
        if not self.pattern.matches(series[0]):
            return []
        start = max(start, self.since.get(series, 1))
        rest = [(start, stop)] if start < stop else []
        for seqs in self.ends.get(series, {}).values():
            rest = [part for low, high in rest for part in seqs.missing(low, high)]
        return rest

    def count_attempt(self, series: Series, seq: int, counts: AttemptCount, last: Attempt) -> None:
        """An event came back from an attempt; `counts` has the counters since the beginning."""
        by_seq = self.tallies.setdefault(series, {})
        tries = by_seq.get(seq, AttemptCount()).tries
        if not tries or tries[-1] != last:
            tries = (*tries, last)[-TRIES_MAX:]
        by_seq[seq] = AttemptCount(counts.acquired, counts.failed, tries)

    def drop_tallies(self, series: Series, start: int, stop: int) -> list[int]:
        """Events ended: forget their attempts. Returns the seqs that had some."""
        by_seq = self.tallies.get(series)
        if by_seq is None:
            return []
        gone = seqs_within(by_seq, start, stop)
        for seq in gone:
            del by_seq[seq]
        if not by_seq:
            del self.tallies[series]
        return gone

    def move_floor(self, floor: int) -> bool:
        """Everything owed before this position has ended. False if that was known."""
        if floor <= self.floor:
            return False
        self.floor = floor
        return True

    def owed(self, series: Series, published: SeqSet) -> SeqSet:
        """The part of the published events that this subscriber is owed."""
        since = self.since.get(series, 1)
        owed = published.copy()
        owed.discard(0, since)
        return owed


class Changes(NamedTuple):
    """The changes of a ledger since they were last taken."""

    series: set[Series]
    accounts: set[str]
    ends: set[tuple[str, Series]]
    tallies: set[tuple[str, Series, int]]
    letters: set[bytes]

    @classmethod
    def none(cls) -> Changes:
        return cls(set(), set(), set(), set(), set())


class Redriven(msgspec.Struct, frozen=True, array_like=True):
    """Dead letters `ranges` were to be published again as events `[first, stop)` of a series."""

    ranges: list[tuple[int, int]]
    topic: str
    source: bytes
    first: int
    stop: int


@dataclass(slots=True)
class HandledLetters:
    """Which of one node's dead letters were handled, by their own seqs. All others wait."""

    redriven: SeqSet = field(default_factory=SeqSet)
    dropped: SeqSet = field(default_factory=SeqSet)
    last: Redriven | None = None
    """The last redrive: a crash may have happened between its record and its events."""

    def waiting(self, published: SeqSet) -> SeqSet:
        """The dead letters that were neither redriven nor dropped."""
        return published.difference(self.redriven).difference(self.dropped)

    def redrive(self, redriven: Redriven) -> None:
        """Dead letters are published again."""
        for start, stop in redriven.ranges:
            self.redriven.add(start, stop)
        self.last = redriven

    def put_back(self, start: int, stop: int) -> None:
        """Dead letters `[start, stop)` wait again: the events of their redrive were never stored."""
        self.redriven.discard(start, stop)
        self.last = None


@dataclass(slots=True)
class TopicTotals:
    """What was published on one topic, kept as it is published."""

    events: int = 0
    sources: int = 0
    gaps: int = 0
    """Runs of seqs that are missing."""


class Ledger:
    """Every published event and every subscriber's outcomes, as ranges.

    >>> ledger = Ledger()
    >>> _ = ledger.open("audit", Pattern("plant/**"), {}, 0)
    >>> ledger.publish("plant/a", b"s" * 16, 1, 11)
    >>> ledger.settle("audit", "plant/a", b"s" * 16, 1, 8, FinalOutcome.ACCEPTED)
    [(1, 8)]
    >>> row = ledger.rows()[0]
    >>> (row.published, row.accepted, row.in_flight, row.balanced)
    (10, 7, 3, True)
    """

    def __init__(self) -> None:
        self.published: dict[Series, SeqSet] = {}
        self.topics: dict[str, TopicTotals] = {}
        """The totals of `published`, by topic."""
        self.skipped: dict[Series, SeqSet] = {}
        """Events that exist but never arrived here, because no cache had them. Their series continue after them."""
        self.accounts: dict[str, Account] = {}
        self.letters: dict[bytes, HandledLetters] = {}
        """Which dead letters were handled, by the source of the dead letters."""
        self._changes = Changes.none()

    def publish(self, topic: str, source: bytes, start: int, stop: int) -> None:
        """Events `[start, stop)` were stored."""
        series = (topic, source)
        seqs = self.published.get(series)
        if seqs is None:
            seqs = self.restore_published(series, SeqSet())
        totals = self.topics[topic]
        events, runs = seqs.count, seqs.range_count
        seqs.add(start, stop)
        totals.events += seqs.count - events
        if seqs.range_count != runs:
            totals.gaps += max(seqs.range_count - 1, 0) - max(runs - 1, 0)
        self._changes.series.add(series)

    def restore_published(self, series: Series, seqs: SeqSet) -> SeqSet:
        """A series as it was saved; returns the set that the ledger keeps."""
        totals = self.topics.get(series[0])
        if totals is None:
            totals = self.topics[series[0]] = TopicTotals()
        totals.events += seqs.count
        totals.sources += 1
        totals.gaps += max(seqs.range_count - 1, 0)
        self.published[series] = seqs
        return seqs

    def skip(self, topic: str, source: bytes, start: int, stop: int) -> list[Range]:
        """Events `[start, stop)` will never arrive here; returns the ranges for which this is new."""
        series = (topic, source)
        skipped = self.skipped.setdefault(series, SeqSet())
        stored = self.published.get(series, SeqSet())
        fresh = [part for bounds in stored.missing(start, stop) for part in skipped.missing(*bounds)]
        for low, high in fresh:
            skipped.add(low, high)
            self._changes.series.add(series)
        return fresh

    def existing(self, series: Series) -> SeqSet:
        """Every event of the series that is known to be published, stored here or not."""
        published, skipped = self.published.get(series, SeqSet()), self.skipped.get(series)
        return published.union(skipped) if skipped else published

    def untold(self, name: str) -> list[tuple[Series, int, int]]:
        """The skipped events that a durable subscriber is owed and has not been told about."""
        account = self.accounts.get(name)
        if account is None:
            return []
        return [
            (series, start, stop)
            for series, seqs in sorted(self.skipped.items())
            for bounds in seqs.ranges()
            for start, stop in account.open_within(series, *bounds)
        ]

    def open(self, name: str, pattern: Pattern, since: Mapping[Series, int], floor: int) -> Account:
        """Add a durable subscriber. An existing one stays unchanged."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, pattern, dict(since), floor)
            self._changes.accounts.add(name)
        return account

    def close(self, name: str) -> None:
        """Delete a durable subscriber: it is owed nothing any more."""
        account = self.accounts.pop(name, None)
        if account is not None:
            self._changes.accounts.add(name)
            self._changes.ends.update((name, series) for series in account.ends)
            for series, by_seq in account.tallies.items():
                self._changes.tallies.update((name, series, seq) for seq in by_seq)

    def settle(
        self, name: str, topic: str, source: bytes, start: int, stop: int, end: FinalOutcome
    ) -> list[Range]:
        """Enter an outcome for `[start, stop)`; returns the ranges that had not ended before."""
        account = self.accounts.get(name)
        if account is None:
            return []
        series = (topic, source)
        fresh = account.settle(series, start, stop, end)
        if fresh:
            self._changes.ends.add((name, series))
        if account.tallies:
            gone = account.drop_tallies(series, start, stop)
            self._changes.tallies.update((name, series, seq) for seq in gone)
        return fresh

    def tally(self, name: str, series: Series, bounds: Range, counts: AttemptCount, last: Attempt) -> None:
        """Events in `bounds` came back from an attempt; `counts` has the counters since the beginning."""
        account = self.accounts.get(name)
        if account is None:
            return
        for seq in range(*bounds):
            account.count_attempt(series, seq, counts, last)
            self._changes.tallies.add((name, series, seq))

    def drop_letters(self, source: bytes, start: int, stop: int) -> None:
        """Dead letters `[start, stop)` were dropped."""
        self._handled(source).dropped.add(start, stop)

    def redrive_letters(self, source: bytes, redriven: Redriven) -> None:
        """Dead letters are published again, as the events that follow in the log."""
        self._handled(source).redrive(redriven)

    def put_letters_back(self, source: bytes, start: int, stop: int) -> None:
        """Dead letters `[start, stop)` wait again: the events of their redrive were never stored."""
        self._handled(source).put_back(start, stop)

    def _handled(self, source: bytes) -> HandledLetters:
        self._changes.letters.add(source)
        return self.letters.setdefault(source, HandledLetters())

    def move_floor(self, name: str, floor: int) -> None:
        """Everything owed to `name` before this position has ended."""
        account = self.accounts.get(name)
        if account is not None and account.move_floor(floor):
            self._changes.accounts.add(name)

    def take_changes(self) -> Changes:
        """Everything that changed since the last call."""
        changes, self._changes = self._changes, Changes.none()
        return changes

    def rows(self, known: Mapping[str, Mapping[Series, SeqSet]] | None = None) -> list[LedgerRow]:
        """The whole ledger, a row per subscriber and topic.

        `known` has, per subscriber, the events that the dispatcher still has in flight. With it, an event that has
        neither ended nor is in flight is a problem. A silent loss shows up that way.
        """

        def held_by(name: str) -> Held | None:
            seqs = None if known is None else known.get(name)
            return None if seqs is None else lambda series: seqs.get(series, _NOTHING)

        return [row for row in self.walk(held_by) if row is not None]

    def walk(
        self,
        held_by: Callable[[str], Held | None],
        pattern: Pattern | None = None,
        after: tuple[str, str] = ("", ""),
    ) -> Iterator[LedgerRow | None]:
        """The rows in order, and None after every `STEP_SERIES` series: the ledger may change before the next step.

        A series is looked at in one step, so each is exact at that time. `held_by` is called in every step, for the
        events that a subscriber has in flight then; None if nobody knows. Rows up to `after` (a subscriber and a
        topic) are left out.
        """
        by_topic: dict[str, dict[Series, None]] = {}
        everything = chain(list(self.published), list(self.skipped))
        yield from self._group(everything, by_topic, pattern)
        for name in sorted(self.accounts):
            account = self.accounts.get(name)
            if name < after[0] or account is None:
                continue
            theirs = {topic: several for topic, several in by_topic.items() if account.pattern.matches(topic)}
            yield from self._group(list(account.ends), theirs, pattern)
            yield None
            for topic in sorted(theirs):
                if (name, topic) > after:
                    yield from self._row(account, topic, theirs[topic], held_by)

    def _group(
        self, several: Iterable[Series], by_topic: dict[str, dict[Series, None]], pattern: Pattern | None
    ) -> Iterator[None]:
        for count, series in enumerate(several, 1):
            if series[0] in by_topic:
                by_topic[series[0]][series] = None
            elif pattern is None or pattern.matches(series[0]):
                by_topic[series[0]] = {series: None}
            if count % GROUP_SERIES == 0:
                yield None

    def _row(
        self,
        account: Account,
        topic: str,
        several: Iterable[Series],
        held_by: Callable[[str], Held | None],
    ) -> Iterator[LedgerRow | None]:
        total, held = RowSum(account.name, topic), held_by(account.name)
        for count, series in enumerate(several, 1):
            total.add(
                series[1],
                account.since.get(series, 1),
                self.published.get(series, _NOTHING),
                self.skipped.get(series, _NOTHING),
                account.ends.get(series, {}),
                None if held is None else held(series),
            )
            if count % STEP_SERIES == 0:
                yield None
                held = held_by(account.name)
        yield total.row()


def seqs_within(by_seq: Mapping[int, object], start: int, stop: int) -> list[int]:
    """The keys in `[start, stop)`. It walks the range or the mapping, whichever is shorter.

    >>> seqs_within({3: "c", 9: "i"}, 1, 1_000_000)
    [3, 9]
    """
    if stop - start < len(by_seq):
        return [seq for seq in range(start, stop) if seq in by_seq]
    return [seq for seq in by_seq if start <= seq < stop]

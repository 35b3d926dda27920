"""The ledger: published = accepted + dead-lettered + lost + in flight, for every topic and durable subscriber.

Both sides are ranges. A `SeqSet` per series has the published events; a `SeqSet` per (subscriber, series, final outcome)
has the events that ended. The ledger's size grows with the number of sources, not of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from reknit.attempts import TRIES_MAX, Attempt, AttemptCount
from reknit.outcome import FinalOutcome
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern

Series = tuple[str, bytes]
"""(topic, source): the events of one source on one topic, which have their own seqs without gaps."""
ANYCAST: Final = "anycast/"
"""Accounts with this prefix belong to no subscriber: anycast delivers their events."""


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


class LedgerRow(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    subscriber: str
    topic: str
    published: int
    accepted: int
    dead_lettered: int
    lost: int
    in_flight: int
    problems: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        ended = self.accepted + self.dead_lettered + self.lost
        return not self.problems and self.published == ended + self.in_flight


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
            seqs = self.published[series] = SeqSet()
        seqs.add(start, stop)
        self._changes.series.add(series)

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
        rows: list[LedgerRow] = []
        for name in sorted(self.accounts):
            account = self.accounts[name]
            held = None if known is None else known.get(name)
            by_topic: dict[str, list[Series]] = {}
            for series in {*self.published, *self.skipped, *account.ends}:
                if account.pattern.matches(series[0]):
                    by_topic.setdefault(series[0], []).append(series)
            rows += [self._row(account, topic, by_topic[topic], held) for topic in sorted(by_topic)]
        return rows

    def _row(
        self,
        account: Account,
        topic: str,
        several: Iterable[Series],
        held: Mapping[Series, SeqSet] | None,
    ) -> LedgerRow:
        published = in_flight = 0
        counts = dict.fromkeys(FinalOutcome, 0)
        problems: list[str] = []
        for series in sorted(several):
            owed = account.owed(series, self.existing(series))
            ended = account.ended(series)
            waiting = owed.difference(ended)
            published += owed.count
            in_flight += waiting.count
            for end, seqs in account.ends.get(series, {}).items():
                counts[end] += seqs.count
            problems += _problems(series, "ended but was never published", ended.difference(owed))
            if held is not None:
                silent = waiting.difference(held.get(series, SeqSet()))
                silent = silent.difference(self.skipped.get(series, SeqSet()))
                problems += _problems(series, "has not ended and is not in flight", silent)
        ends = (counts[FinalOutcome.ACCEPTED], counts[FinalOutcome.DEAD_LETTERED], counts[FinalOutcome.LOST])
        return LedgerRow(account.name, topic, published, *ends, in_flight, tuple(problems))


def _problems(series: Series, text: str, seqs: SeqSet) -> list[str]:
    return [f"{series[1].hex()} {span(bounds)} {text}" for bounds in seqs.ranges()]


def seqs_within(by_seq: Mapping[int, object], start: int, stop: int) -> list[int]:
    """The keys in `[start, stop)`. It walks the range or the mapping, whichever is shorter.

    >>> seqs_within({3: "c", 9: "i"}, 1, 1_000_000)
    [3, 9]
    """
    if stop - start < len(by_seq):
        return [seq for seq in range(start, stop) if seq in by_seq]
    return [seq for seq in by_seq if start <= seq < stop]


def span(bounds: tuple[int, int]) -> str:
    """A range as text.

    >>> span((3, 7))
    '[3, 7)'
    """
    return f"[{bounds[0]}, {bounds[1]})"

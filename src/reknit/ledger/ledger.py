"""The ledger: published = accepted + dead-lettered + lost + in flight, for every topic and durable subscriber.

Both sides are ranges. A `SeqSet` per series has the published events; a `SeqSet` per (subscriber, series, final outcome)
has the events that ended. The ledger's size grows with the number of sources, not of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reknit.attempts import Attempt, AttemptCount
from reknit.ledger.account import ANYCAST, Account, Series, account_pattern
from reknit.ledger.letters import HandledLetters, Redriven
from reknit.ledger.rows import NOTHING, Held, LedgerRow
from reknit.ledger.topics import SeriesByTopic, TopicTotals
from reknit.ledger.walk import HeldBy, LedgerWalk
from reknit.outcome import FinalOutcome
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern


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
        self.series = SeriesByTopic()
        """Every series that was published or skipped, or of which events ended."""
        self._unpublished: set[Series] = set()
        """Those of which nothing was published."""
        self.accounts: dict[str, Account] = {}
        self.owners: dict[bytes, str] = {}
        """By source: the identity that may publish as it."""
        self.letters: dict[bytes, HandledLetters] = {}
        """Which dead letters were handled, by the source of the dead letters."""
        self._recent: dict[str, int] = {}
        """By topic with events since `take_recent`: the number of its events before."""
        self._changes = Changes.none()

    def publish(self, topic: str, source: bytes, start: int, stop: int) -> None:
        """Events `[start, stop)` were stored."""
        series = (topic, source)
        seqs = self.published.get(series)
        if seqs is None:
            seqs = self.restore_published(series, SeqSet())
        totals = self.topics[topic]
        self._recent.setdefault(topic, totals.events)
        self._changes.series.add(series)
        if seqs.extend(start, stop):
            totals.events += stop - start
            return
        events, runs = seqs.count, seqs.range_count
        seqs.add(start, stop)
        totals.events += seqs.count - events
        if seqs.range_count != runs:
            totals.gaps += max(seqs.range_count - 1, 0) - max(runs - 1, 0)

    def take_recent(self) -> dict[str, int]:
        """The topics that had events since the last call, each with the number of its events before."""
        recent, self._recent = self._recent, {}
        return recent

    def restore_published(self, series: Series, seqs: SeqSet) -> SeqSet:
        """A series as it was saved; returns the set that the ledger keeps."""
        totals = self.topics.get(series[0])
        if totals is None:
            totals = self.topics[series[0]] = TopicTotals()
        totals.events += seqs.count
        totals.sources += 1
        totals.gaps += max(seqs.range_count - 1, 0)
        self._know(series)
        self._unpublished.discard(series)
        self.published[series] = seqs
        return seqs

    def restore_skipped(self, series: Series, seqs: SeqSet) -> None:
        """The skipped events of a series as they were saved."""
        self._know(series)
        self.skipped[series] = seqs

    def restored(self) -> None:
        """Everything is in the ledger as it was saved: nothing has changed yet."""
        for account in self.accounts.values():
            for series in account.ends:
                self._know(series)
            account.note_outside({topic for topic, _ in account.ends})
        self.take_changes()

    def _know(self, series: Series) -> None:
        if series not in self.published and series not in self._unpublished:
            self._unpublished.add(series)
            self.series.add(series)

    def skip(self, topic: str, source: bytes, start: int, stop: int) -> list[Range]:
        """Events `[start, stop)` will never arrive here; returns the ranges for which this is new."""
        series = (topic, source)
        self._know(series)
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
            owed = account_pattern(name, pattern.text)
            account = self.accounts[name] = Account(name, owed, dict(since), floor)
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

    def own_source(self, topic: str, source: bytes, owner: str) -> None:
        """A source belongs to an identity from now on; to nobody if that is empty."""
        if owner:
            self.owners[source] = owner
        else:
            self.owners.pop(source, None)
        self._changes.series.add((topic, source))

    def own_subscriber(self, name: str, owner: str) -> None:
        """A durable subscriber belongs to an identity from now on; to nobody if that is empty."""
        account = self.accounts.get(name)
        if account is not None:
            account.owner = owner
            self._changes.accounts.add(name)

    def settle(
        self, name: str, topic: str, source: bytes, start: int, stop: int, end: FinalOutcome
    ) -> list[Range]:
        """Enter an outcome for `[start, stop)`; returns the ranges that had not ended before."""
        account = self.accounts.get(name)
        if account is None:
            return []
        series = (topic, source)
        if series not in account.ends:
            self._know(series)
            account.note_outside((topic,))
        fresh = account.settle(series, start, stop, end)
        if fresh:
            self._changes.ends.add((name, series))
        if account.tallies:
            gone = account.drop_tallies(series, start, stop)
            self._changes.tallies.update((name, series, seq) for seq in gone)
        return fresh

    def lose(self, name: str, series: Series, ranges: Iterable[Range], reason: str) -> None:
        """Events ended as lost: the subscriber has to learn that. Nobody does for anycast, which has no subscriber."""
        account = self.accounts.get(name)
        if account is not None and not name.startswith(ANYCAST):
            for start, stop in ranges:
                account.losses.setdefault(series, {}).setdefault(reason, SeqSet()).add(start, stop)
                self._changes.accounts.add(name)

    def learn(self, name: str, series: Series, start: int, stop: int) -> None:
        """A subscriber knows that the lost ones of `[start, stop)` are lost."""
        account = self.accounts.get(name)
        if account is not None and account.learn(series, start, stop):
            self._changes.accounts.add(name)

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

    # -- reading

    def rows(self, known: Mapping[str, Mapping[Series, SeqSet]] | None = None) -> list[LedgerRow]:
        """The whole ledger, a row per subscriber and topic.

        `known` has, per subscriber, the events that the dispatcher still has in flight. With it, an event that has
        neither ended nor is in flight is a problem. A silent loss shows up that way.
        """

        def held_by(name: str) -> Held | None:
            seqs = None if known is None else known.get(name)
            return None if seqs is None else lambda series: seqs.get(series, NOTHING)

        return [row for row in self.walk(held_by) if row is not None]

    def walk(
        self,
        held_by: HeldBy,
        pattern: Pattern | None = None,
        after: tuple[str, str] = ("", ""),
    ) -> Iterator[LedgerRow | None]:
        """The rows in order, and None after every step: the ledger may change before the next one.

        A series is looked at in one step, so each is exact at that time. `held_by` is called in every step, for the
        events that a subscriber has in flight then; None if nobody knows. Rows up to `after` (a subscriber and a
        topic) are left out.
        """
        parts = (self.accounts, self.series, self.published, self.skipped, self._unpublished)
        return LedgerWalk(*parts, held_by).rows(pattern, after)

    def matching(self, pattern: Pattern) -> Iterator[tuple[Series, SeqSet]]:
        """The series whose topic matches, and what was published of each. A topic's series come together."""
        for series in self.series.matching(pattern):
            seqs = self.published.get(series)
            if seqs:
                yield series, seqs

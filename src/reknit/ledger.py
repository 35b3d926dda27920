"""The ledger: published = accepted + dead-lettered + lost + in flight, for every topic and durable subscriber.

Both sides are ranges. What was published is a `SeqSet` per (topic, source); what became of it is one `SeqSet` per
end for every (subscriber, topic, source). Its size grows with the number of sources, not of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from reknit.attempts import TRIES_MAX, Tally, Try
from reknit.outcome import End
from reknit.seqset import SeqSet
from reknit.topic import Pattern

Series = tuple[str, bytes]
"""(topic, source): the events of one source on one topic, which have their own seqs without gaps."""
Stream = Series
ANYCAST: Final = "anycast/"
"""Accounts whose names begin so are no subscriber's: anycast sees to what is owed there."""


@dataclass(slots=True)
class Account:
    """What one durable subscriber is owed, and what became of it."""

    name: str
    pattern: Pattern
    since: dict[Stream, int]
    """The first owed seq of the streams that existed before; a stream that is not here is owed from seq 1."""
    floor: int
    """The journal's position before which everything owed has ended."""
    ends: dict[Stream, dict[End, SeqSet]] = field(default_factory=dict)
    tallies: dict[Stream, dict[int, Tally]] = field(default_factory=dict)
    """The attempts at events that have come back and not ended yet."""

    def ended(self, stream: Stream) -> SeqSet:
        """Every seq of the stream that has ended, one way or another."""
        total = SeqSet()
        for seqs in self.ends.get(stream, {}).values():
            total = total.union(seqs)
        return total

    def settle(self, stream: Stream, start: int, stop: int, end: End) -> list[tuple[int, int]]:
        """Book an end for `[start, stop)`. An event ends once: gives the ranges for which this was news."""
        ends = self.ends.setdefault(stream, {})
        fresh = [(start, stop)]
        for seqs in ends.values():
            fresh = [part for low, high in fresh for part in seqs.missing(low, high)]
        for low, high in fresh:
            ends.setdefault(end, SeqSet()).add(low, high)
        return fresh

    def open_within(self, stream: Stream, start: int, stop: int) -> list[tuple[int, int]]:
        """What of `[start, stop)` is owed and has not ended."""
        if not self.pattern.matches(stream[0]):
            return []
        start = max(start, self.since.get(stream, 1))
        rest = [(start, stop)] if start < stop else []
        for seqs in self.ends.get(stream, {}).values():
            rest = [part for low, high in rest for part in seqs.missing(low, high)]
        return rest

    def drop_tallies(self, stream: Stream, start: int, stop: int) -> list[int]:
        """Events ended: their attempts are of no interest any more. Gives the seqs that had some."""
        tallies = self.tallies.get(stream)
        if tallies is None:
            return []
        gone = seqs_within(tallies, start, stop)
        for seq in gone:
            del tallies[seq]
        if not tallies:
            del self.tallies[stream]
        return gone

    def owed(self, stream: Stream, published: SeqSet) -> SeqSet:
        """What of the published is for this subscriber."""
        since = self.since.get(stream, 1)
        owed = published.copy()
        owed.discard(0, since)
        return owed


class Changes(NamedTuple):
    """What changed in a ledger."""

    streams: set[Stream]
    accounts: set[str]
    ends: set[tuple[str, Stream]]
    tallies: set[tuple[str, Stream, int]]
    letters: set[bytes]


class Redriven(msgspec.Struct, frozen=True, array_like=True):
    """Dead letters `ranges` were to be published again as events `[first, stop)` of a stream."""

    ranges: list[tuple[int, int]]
    topic: str
    source: bytes
    first: int
    stop: int


@dataclass(slots=True)
class Letters:
    """What became of one node's dead letters, by their own seqs. All others wait."""

    redriven: SeqSet = field(default_factory=SeqSet)
    dropped: SeqSet = field(default_factory=SeqSet)
    last: Redriven | None = None
    """The last redrive: a crash may have come between its record and its events."""

    def waiting(self, published: SeqSet) -> SeqSet:
        """The letters that were neither redriven nor dropped."""
        return published.difference(self.redriven).difference(self.dropped)


class Row(msgspec.Struct, frozen=True):
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
    """Every published event and every subscriber's outcome, as ranges.

    >>> ledger = Ledger()
    >>> _ = ledger.open("audit", Pattern("plant/**"), {}, 0)
    >>> ledger.publish("plant/a", b"s" * 16, 1, 11)
    >>> ledger.settle("audit", "plant/a", b"s" * 16, 1, 8, End.ACCEPTED)
    [(1, 8)]
    >>> row = ledger.rows()[0]
    >>> (row.published, row.accepted, row.in_flight, row.balanced)
    (10, 7, 3, True)
    """

    def __init__(self) -> None:
        self.published: dict[Stream, SeqSet] = {}
        self.skipped: dict[Stream, SeqSet] = {}
        """Events that exist and never came here: nobody had them. Their streams go on behind them."""
        self.accounts: dict[str, Account] = {}
        self.letters: dict[bytes, Letters] = {}
        """What became of dead letters, by the source of the letters."""
        self._changed_streams: set[Stream] = set()
        self._changed_accounts: set[str] = set()
        self._changed_ends: set[tuple[str, Stream]] = set()
        self._changed_tallies: set[tuple[str, Stream, int]] = set()
        self._changed_letters: set[bytes] = set()

    def publish(self, topic: str, source: bytes, start: int, stop: int) -> None:
        """Events `[start, stop)` were kept."""
        stream = (topic, source)
        seqs = self.published.get(stream)
        if seqs is None:
            seqs = self.published[stream] = SeqSet()
        seqs.add(start, stop)
        self._changed_streams.add(stream)

    def skip(self, topic: str, source: bytes, start: int, stop: int) -> list[tuple[int, int]]:
        """Events `[start, stop)` will never come here; gives the ranges for which this was news."""
        stream = (topic, source)
        skipped = self.skipped.setdefault(stream, SeqSet())
        kept = self.published.get(stream, SeqSet())
        fresh = [part for bounds in kept.missing(start, stop) for part in skipped.missing(*bounds)]
        for low, high in fresh:
            skipped.add(low, high)
            self._changed_streams.add(stream)
        return fresh

    def existing(self, stream: Stream) -> SeqSet:
        """Every event of the stream that was published as far as is known here, kept or not."""
        published, skipped = self.published.get(stream, SeqSet()), self.skipped.get(stream)
        return published.union(skipped) if skipped else published

    def untold(self, name: str) -> list[tuple[Stream, int, int]]:
        """What never came here, is owed to a durable subscriber, and has not ended for it: it is to be told."""
        account = self.accounts.get(name)
        if account is None:
            return []
        return [
            (stream, start, stop)
            for stream, seqs in sorted(self.skipped.items())
            for bounds in seqs.ranges()
            for start, stop in account.open_within(stream, *bounds)
        ]

    def open(self, name: str, pattern: Pattern, since: Mapping[Stream, int], floor: int) -> Account:
        """A durable subscriber appears. One that is there already stays as it is."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, pattern, dict(since), floor)
            self._changed_accounts.add(name)
        return account

    def close(self, name: str) -> None:
        """A durable subscriber is removed for good: nothing is owed to it any more."""
        account = self.accounts.pop(name, None)
        if account is not None:
            self._changed_accounts.add(name)
            self._changed_ends.update((name, stream) for stream in account.ends)
            for stream, tallies in account.tallies.items():
                self._changed_tallies.update((name, stream, seq) for seq in tallies)

    def settle(
        self, name: str, topic: str, source: bytes, start: int, stop: int, end: End
    ) -> list[tuple[int, int]]:
        """An outcome for `[start, stop)`; gives the ranges that had not ended before."""
        account = self.accounts.get(name)
        if account is None:
            return []
        fresh = account.settle((topic, source), start, stop, end)
        if fresh:
            self._changed_ends.add((name, (topic, source)))
        if account.tallies:
            gone = account.drop_tallies((topic, source), start, stop)
            self._changed_tallies.update((name, (topic, source), seq) for seq in gone)
        return fresh

    def tally(self, name: str, stream: Stream, bounds: tuple[int, int], counts: Tally, last: Try) -> None:
        """Events `[start, stop)` came back from an attempt; `counts` are the counters since the beginning."""
        account = self.accounts.get(name)
        if account is None:
            return
        tallies = account.tallies.setdefault(stream, {})
        for seq in range(*bounds):
            tries = tallies.get(seq, Tally()).tries
            if not tries or tries[-1] != last:
                tries = (*tries, last)[-TRIES_MAX:]
            tallies[seq] = Tally(counts.acquired, counts.failed, tries)
            self._changed_tallies.add((name, stream, seq))

    def handle_letters(self, source: bytes, start: int, stop: int, is_redriven: bool) -> None:
        """Dead letters `[start, stop)` were redriven or dropped."""
        letters = self.letters.setdefault(source, Letters())
        (letters.redriven if is_redriven else letters.dropped).add(start, stop)
        self._changed_letters.add(source)

    def redrive_letters(self, source: bytes, redriven: Redriven) -> None:
        """Dead letters are published again, by what follows in the log."""
        for start, stop in redriven.ranges:
            self.handle_letters(source, start, stop, is_redriven=True)
        self.letters.setdefault(source, Letters()).last = redriven

    def put_letters_back(self, source: bytes, start: int, stop: int) -> None:
        """Dead letters `[start, stop)` wait after all: what they were redriven as was never kept."""
        letters = self.letters.setdefault(source, Letters())
        letters.redriven.discard(start, stop)
        letters.last = None
        self._changed_letters.add(source)

    def move_floor(self, name: str, floor: int) -> None:
        """Everything owed to `name` before this position has ended."""
        account = self.accounts.get(name)
        if account is not None and floor > account.floor:
            account.floor = floor
            self._changed_accounts.add(name)

    def take_changes(self) -> Changes:
        """What changed since the last call: published streams, accounts, their ends and tallies, dead letters."""
        changes = Changes(
            self._changed_streams,
            self._changed_accounts,
            self._changed_ends,
            self._changed_tallies,
            self._changed_letters,
        )
        self._changed_streams, self._changed_accounts, self._changed_ends = set(), set(), set()
        self._changed_tallies, self._changed_letters = set(), set()
        return changes

    def rows(self, known: Mapping[str, Mapping[Stream, SeqSet]] | None = None) -> list[Row]:
        """The whole ledger, a row per subscriber and topic.

        `known` says, per subscriber, which events the dispatcher still has in hand. Where it is given, an event that
        has not ended and that nobody has in hand is a problem: that is how a silent loss shows.
        """
        rows: list[Row] = []
        for name in sorted(self.accounts):
            account = self.accounts[name]
            held = None if known is None else known.get(name)
            by_topic: dict[str, list[Stream]] = {}
            for stream in {*self.published, *self.skipped, *account.ends}:
                if account.pattern.matches(stream[0]):
                    by_topic.setdefault(stream[0], []).append(stream)
            rows += [self._row(account, topic, by_topic[topic], held) for topic in sorted(by_topic)]
        return rows

    def _row(
        self, account: Account, topic: str, streams: Iterable[Stream], held: Mapping[Stream, SeqSet] | None
    ) -> Row:
        published = in_flight = 0
        counts = dict.fromkeys(End, 0)
        problems: list[str] = []
        for stream in sorted(streams):
            owed = account.owed(stream, self.existing(stream))
            ended = account.ended(stream)
            waiting = owed.difference(ended)
            published += owed.count
            in_flight += waiting.count
            for end, seqs in account.ends.get(stream, {}).items():
                counts[end] += seqs.count
            source = stream[1].hex()
            problems += [
                f"{source} {span(r)} ended but was never published" for r in ended.difference(owed).ranges()
            ]
            if held is not None:
                silent = waiting.difference(held.get(stream, SeqSet()))
                silent = silent.difference(self.skipped.get(stream, SeqSet()))
                problems += [f"{source} {span(r)} has no end and nobody has it" for r in silent.ranges()]
        ends = (counts[End.ACCEPTED], counts[End.DEAD_LETTERED], counts[End.LOST])
        return Row(account.name, topic, published, *ends, in_flight, tuple(problems))


def seqs_within(by_seq: Mapping[int, object], start: int, stop: int) -> list[int]:
    """The keys in `[start, stop)`, found by whichever is shorter: the range or the mapping.

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

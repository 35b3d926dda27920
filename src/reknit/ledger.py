"""The ledger: published = accepted + dead-lettered + lost + in flight, for every topic and durable subscriber.

Both sides are ranges. What was published is a `SeqSet` per (topic, source); what became of it is one `SeqSet` per
end for every (subscriber, topic, source). Its size grows with the number of sources, not of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from reknit.outcome import End
from reknit.seqset import SeqSet
from reknit.topic import Pattern

Stream = tuple[str, bytes]
"""(topic, source): what has its own, gapless seqs."""


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

    def owed(self, stream: Stream, published: SeqSet) -> SeqSet:
        """What of the published is for this subscriber."""
        since = self.since.get(stream, 1)
        owed = published.copy()
        owed.discard(0, since)
        return owed


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
        self.accounts: dict[str, Account] = {}
        self._changed_streams: set[Stream] = set()
        self._changed_accounts: set[str] = set()
        self._changed_ends: set[tuple[str, Stream]] = set()

    def publish(self, topic: str, source: bytes, start: int, stop: int) -> None:
        """Events `[start, stop)` were kept."""
        stream = (topic, source)
        seqs = self.published.get(stream)
        if seqs is None:
            seqs = self.published[stream] = SeqSet()
        seqs.add(start, stop)
        self._changed_streams.add(stream)

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
        return fresh

    def move_floor(self, name: str, floor: int) -> None:
        """Everything owed to `name` before this position has ended."""
        account = self.accounts.get(name)
        if account is not None and floor > account.floor:
            account.floor = floor
            self._changed_accounts.add(name)

    def take_changes(self) -> tuple[set[Stream], set[str], set[tuple[str, Stream]]]:
        """What changed since the last call: published streams, accounts, and (account, stream) ends."""
        changes = (self._changed_streams, self._changed_accounts, self._changed_ends)
        self._changed_streams, self._changed_accounts, self._changed_ends = set(), set(), set()
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
            for stream in {*self.published, *account.ends}:
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
            owed = account.owed(stream, self.published.get(stream, SeqSet()))
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
                problems += [f"{source} {span(r)} has no end and nobody has it" for r in silent.ranges()]
        ends = (counts[End.ACCEPTED], counts[End.DEAD_LETTERED], counts[End.LOST])
        return Row(account.name, topic, published, *ends, in_flight, tuple(problems))


def span(bounds: tuple[int, int]) -> str:
    """A range as text.

    >>> span((3, 7))
    '[3, 7)'
    """
    return f"[{bounds[0]}, {bounds[1]})"

"""The account of one durable subscriber: the events that it is owed, how they ended, and losses that it has to learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reknit.attempts import TRIES_MAX, Attempt, AttemptCount
from reknit.outcome import FinalOutcome
from reknit.private_topics import private_prefix
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern, is_reserved

Series = tuple[str, bytes]
"""(topic, source): the events of one source on one topic, which have their own seqs without gaps."""
ANYCAST: Final = "anycast/"
"""Accounts with this prefix belong to no subscriber: anycast delivers their events."""
COPIES: Final = ("relay/", "route/")
"""Accounts with these prefixes belong to a relay or a bridge, which copies events to another node."""
OF_GATEWAYS: Final = "amqp/"
"""Begins the names of durable subscribers that a gateway opens for its clients."""
QUEUES: Final = "queue/"
"""Accounts with this prefix belong to a queue, whose members share its events."""


def account_pattern(name: str, text: str) -> Pattern:
    """What a durable subscriber is owed: with the topics that are its own, unless nobody takes events by that name.

    >>> account_pattern("audit", "plant/*").matches("reknit/redriven/audit/plant/a")
    True
    """
    return Pattern(text, own="" if name.startswith((ANYCAST, *COPIES)) else private_prefix(name))


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
    owner: str = ""
    """The identity that may use the name; empty while nobody owns it."""
    losses: dict[Series, dict[str, SeqSet]] = field(default_factory=dict)
    """Lost events, by series and reason, until the subscriber has confirmed that it knows of them."""
    outside: set[str] = field(default_factory=set)
    """Topics that do not match, with events that ended: there are none, unless something is wrong."""

    def note_outside(self, topics: Iterable[str]) -> None:
        """Events of these topics ended. The node's own topics were part of every wildcard once."""
        others = (topic for topic in topics if not is_reserved(topic))
        self.outside.update(topic for topic in others if not self.pattern.matches(topic))

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
        """An event came back from an attempt; `counts` has the counters since the beginning.

        An attempt that was counted before does not count again: a journal may be replayed from before its index.
        """
        by_seq = self.tallies.setdefault(series, {})
        known = by_seq.get(seq, AttemptCount())
        if counts.acquired > known.acquired:
            tries = (*known.tries, last)[-TRIES_MAX:]
            by_seq[seq] = AttemptCount(counts.acquired, counts.failed, tries, counts.crashed)

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

    def learn(self, series: Series, start: int, stop: int) -> bool:
        """The subscriber knows of the losses in `[start, stop)`. False if there are none that it did not know of."""
        if not self.has_losses(series, start, stop):
            return False
        for seqs in self.losses[series].values():
            seqs.discard(start, stop)
        if not any(self.losses[series].values()):
            del self.losses[series]
        return True

    def has_losses(self, series: Series, start: int, stop: int) -> bool:
        """Whether there are losses in `[start, stop)` that the subscriber has not confirmed."""
        return any(seqs.overlap(start, stop) for seqs in self.losses.get(series, {}).values())

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


def seqs_within(by_seq: Mapping[int, object], start: int, stop: int) -> list[int]:
    """The keys in `[start, stop)`. It walks the range or the mapping, whichever is shorter.

    >>> seqs_within({3: "c", 9: "i"}, 1, 1_000_000)
    [3, 9]
    """
    if stop - start < len(by_seq):
        return [seq for seq in range(start, stop) if seq in by_seq]
    return [seq for seq in by_seq if start <= seq < stop]

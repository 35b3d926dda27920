"""Adds up the ledger's rows in steps, so that a node does its other work meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from reknit.ledger.account import Account, Series
from reknit.ledger.rows import NOTHING, Held, LedgerRow, RowSum
from reknit.ledger.topics import SeriesByTopic, candidates
from reknit.seqset import SeqSet
from reknit.topic import Pattern

STEP_SERIES: Final = 500
"""How many series are added up before a walk through the ledger lets others go on."""
STEP_TOPICS: Final = 2_000
"""The same for comparing topics with a pattern, which is quicker."""

HeldBy = Callable[[str], Held | None]
"""For a subscriber: the events of a series that it has in flight; None if nobody knows."""


@dataclass(frozen=True, slots=True)
class LedgerWalk:
    """A walk through these parts of a ledger, which may change between its steps."""

    accounts: Mapping[str, Account]
    series: SeriesByTopic
    published: Mapping[Series, SeqSet]
    skipped: Mapping[Series, SeqSet]
    unpublished: Set[Series]
    """Those of which nothing was published."""
    held_by: HeldBy

    def rows(self, pattern: Pattern | None, after: tuple[str, str]) -> Iterator[LedgerRow | None]:
        """The rows after a subscriber and a topic, and None after every step."""
        topics: list[str] = []
        if pattern is None:
            topics = self.series.topics()
        else:
            for some in _in_steps(candidates(self.series.topics(), pattern)):
                topics += pattern.matching(some)
                yield None
        for name in sorted(self.accounts):
            if name >= after[0] and (account := self.accounts.get(name)) is not None:
                past = after[1] if name == after[0] else ""
                yield from self._rows_of(account, topics, pattern, past)

    def _rows_of(
        self, account: Account, topics: list[str], pattern: Pattern | None, past: str
    ) -> Iterator[LedgerRow | None]:
        outside = {topic for topic in account.outside if pattern is None or pattern.matches(topic)}
        near: Sequence[str] = candidates(topics, account.pattern, past)
        if outside:
            near = sorted({*near, *(topic for topic in outside if topic > past)})
        count = 0
        for some in _in_steps(near):
            theirs = account.pattern.matching(some)
            if outside:
                theirs = sorted({*theirs, *outside.intersection(some)})
            for topic in theirs:
                several = self._owed(account, topic, topic in outside)
                if several:
                    yield from self._row(account, topic, several)
                count += 1 + len(several)
                if count >= STEP_SERIES:
                    yield None
                    count = 0
            yield None

    def _owed(self, account: Account, topic: str, is_outside: bool) -> Sequence[Series]:
        """The series of a topic that belong to an account: those that exist, and those of which its events ended."""
        several = self.series.of(topic)
        if is_outside:
            return [series for series in several if series in account.ends]
        if self.unpublished:
            exist = self.published, self.skipped, account.ends
            return [series for series in several if any(series in one for one in exist)]
        return several

    def _row(self, account: Account, topic: str, several: Sequence[Series]) -> Iterator[LedgerRow | None]:
        """One row. It is left out if the account is closed before it is added up."""
        total, held = RowSum(account.name, topic), self.held_by(account.name)
        since, ends, skipped = account.since, account.ends, self.skipped
        for count, series in enumerate(several, 1):
            published = self.published.get(series, NOTHING)
            is_whole = held is None and series not in since and series not in skipped
            if is_whole and series not in ends:
                total.add_waiting(published.count)  # most series of a subscriber that is away
            else:
                total.add(
                    series,
                    since.get(series, 1),
                    published,
                    skipped.get(series, NOTHING),
                    ends.get(series, {}),
                    held,
                )
            if count % STEP_SERIES == 0:
                yield None
                held = self.held_by(account.name)
        if self.accounts.get(account.name) is account:
            yield total.row()


def _in_steps(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    return (topics[at : at + STEP_TOPICS] for at in range(0, len(topics), STEP_TOPICS))

"""The topics of a ledger: what was published on each, and the series of each, in an order that a walk can resume.

A question about a pattern looks at the topics that share its first segments, and not at every source.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reknit.ledger.account import Series
from reknit.topic import Pattern


@dataclass(slots=True)
class TopicTotals:
    """The events that were published on one topic. It is updated with each batch."""

    events: int = 0
    sources: int = 0
    gaps: int = 0
    """Runs of seqs that are missing."""

    def add(self, other: TopicTotals) -> None:
        """Add what was published on another topic."""
        self.events += other.events
        self.sources += other.sources
        self.gaps += other.gaps


class SeriesByTopic:
    """Every series that a ledger knows, by topic, and the topics in order.

    >>> known = SeriesByTopic()
    >>> for topic in ("plant/b", "car/1", "plant/a"):
    ...     known.add((topic, b"s"))
    >>> known.topics(), known.topics(Pattern("plant/*"))
    (['car/1', 'plant/a', 'plant/b'], ['plant/a', 'plant/b'])
    """

    def __init__(self) -> None:
        self._series: dict[str, list[Series]] = {}
        self._topics: list[str] = []
        self._new: list[str] = []
        """Topics that have no place in the order yet."""

    def add(self, series: Series) -> None:
        """A series that was not known."""
        several = self._series.get(series[0])
        if several is None:
            self._series[series[0]] = [series]
            self._new.append(series[0])
        else:
            several.append(series)

    def of(self, topic: str) -> Sequence[Series]:
        """The series of a topic. New ones may be appended at any time."""
        return self._series.get(topic, ())

    def topics(self, pattern: Pattern | None = None) -> list[str]:
        """All topics in order, or those that match. The list does not change when topics are added."""
        if self._new:
            self._topics = sorted(self._topics + self._new)
            self._new = []
        if pattern is None:
            return self._topics
        return pattern.matching(candidates(self._topics, pattern))

    def matching(self, pattern: Pattern) -> Iterator[Series]:
        """Every series whose topic matches, by topic."""
        for topic in self.topics(pattern):
            yield from self.of(topic)


def candidates(topics: Sequence[str], pattern: Pattern, after: str = "") -> Sequence[str]:
    """Those of the ordered topics, after one of them, that may match a pattern: they begin as it does.

    >>> candidates(["a", "a/b", "b"], Pattern("a/**"), after="a")
    ['a/b']
    """
    if pattern.own and not pattern.own.startswith(pattern.prefix):
        one = candidates(topics, Pattern(pattern.text), after)
        other = candidates(topics, Pattern(f"{pattern.own}**"), after)
        return sorted((*one, *other)) if other else one
    prefix = pattern.prefix
    size = len(prefix)
    low = max(bisect_left(topics, prefix), bisect_right(topics, after))
    high = bisect_right(topics, prefix, lo=low, key=lambda topic: topic[:size])
    return topics[low:high]

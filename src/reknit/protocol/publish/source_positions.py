"""The positions of all sources: the last durable seq, the next expected one, and where new sources begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REFUSED_SOURCES_MAX: Final = 65_536
"""This many sources with refused events are remembered, so that a repeated batch makes no second dead letter."""


class SourcePositions:
    """The seqs of all sources that a node knows.

    >>> positions = SourcePositions({b"s": 4})
    >>> positions.expected(b"s"), positions.durable(b"s"), positions.is_settled(b"s")
    (5, 4, True)
    >>> positions.advance(b"s", 9)
    >>> positions.expected(b"s"), positions.durable(b"s"), positions.is_settled(b"s")
    (9, 4, False)
    """

    def __init__(self, durable: Mapping[bytes, int], sources_max: int = 1_000_000) -> None:
        self.sources_max = sources_max
        self.next_seqs = {source: seq + 1 for source, seq in durable.items()}
        """The next seq to append by source: after its durable events, and those that were appended since."""
        self._durable = dict(durable)
        """The last durable seq by source."""
        self._begins: dict[bytes, int] = {}
        """The first seq of new sources whose first events were not taken."""
        self._refused: dict[bytes, int] = {}
        """By source: the seq before which refused events have become dead letters."""

    def expected(self, source: bytes) -> int:
        """The next seq that is taken of a known source."""
        return self.next_seqs.get(source, 1)

    def begin_of(self, source: bytes, first: int) -> int:
        """The next seq that is taken of any source; a new one begins with `first`, or its refused events."""
        return self.next_seqs.get(source) or self._begins.get(source, first)

    def durable(self, source: bytes) -> int:
        """The last durable seq; 0 if there is none."""
        return self._durable.get(source, 0)

    def is_settled(self, source: bytes) -> bool:
        """Whether everything that was appended is durable."""
        return self.durable(source) + 1 >= self.expected(source)

    def is_over_limit(self, source: bytes) -> bool:
        """Whether a source is new, and there are as many sources as allowed."""
        return source not in self.next_seqs and len(self.next_seqs) >= self.sources_max

    # -- transitions

    def advance(self, source: bytes, stop: int) -> None:
        """Everything before `stop` was appended."""
        self.next_seqs[source] = stop

    def started(self, source: bytes) -> None:
        """A source's first events were taken."""
        self._begins.pop(source, None)

    def skip_to(self, source: bytes, seq: int) -> bool:
        """Events before `seq` will never arrive. Returns whether some of them were expected."""
        if seq <= self.expected(source):
            return False
        self.next_seqs[source] = seq
        return True

    def made_durable(self, source: bytes, stop: int) -> int:
        """Everything before `stop` is durable; returns the last durable seq."""
        seq = self._durable[source] = max(self._durable.get(source, 0), stop - 1)
        return seq

    def turned_away(self, source: bytes, first: int) -> None:
        """Events were not taken: a new source begins with them, not with later ones."""
        if source not in self.next_seqs and len(self._begins) < self.sources_max:
            self._begins.setdefault(source, first)

    def refuse(self, source: bytes, stop: int) -> int:
        """Events before `stop` become dead letters; returns the seq before which they were before."""
        before = self._refused.get(source, 0)
        if stop > before:
            if len(self._refused) >= REFUSED_SOURCES_MAX:
                self._refused.clear()
                before = 0
            self._refused[source] = stop
        return before

"""Isolation: after a crash of a subscriber, few of the events that it had are delivered at a time.

Nobody knows which of them its process died of, so none is blamed. Each crash makes the window smaller, until an event
is alone with the subscriber. An event that was alone at a crash stays alone. Isolation ends when every suspect has
ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reknit.ledger import Series
from reknit.seqset import SeqSet

NARROWING: Final = 16
"""Each crash divides the number of events that are delivered at a time by this: 65,536 suspects take four crashes."""


def window_after(count: int) -> int:
    """How many events a subscriber gets at a time after it crashed with `count` events.

    >>> [window_after(count) for count in (1, 16, 300, 65_536)]
    [1, 1, 18, 4096]
    """
    return max(count // NARROWING, 1)


class Isolation:
    """The suspects of one queue, and how many events its subscriber, or each of its members, may have meanwhile.

    >>> isolation = Isolation({("a", b"s"): SeqSet.from_ranges([(3, 5)])}, window=1)
    >>> isolation.end(("a", b"s"), 1, 4), isolation.end(("a", b"s"), 4, 9)
    (False, True)
    """

    __slots__ = ("_suspects", "window")

    def __init__(self, suspects: Mapping[Series, SeqSet], window: int) -> None:
        self._suspects = {series: seqs.copy() for series, seqs in suspects.items() if seqs}
        self.window = window

    def add(self, suspects: Mapping[Series, SeqSet], window: int) -> None:
        """Another one crashed, or may have: there are more suspects, and not more of them at a time."""
        for series, seqs in suspects.items():
            self._suspects[series] = self._suspects.get(series, SeqSet()).union(seqs)
        self.window = min(self.window, window)

    def end(self, series: Series, start: int, stop: int) -> bool:
        """Events ended; returns whether no suspect is left."""
        seqs = self._suspects.get(series)
        if seqs is not None:
            seqs.discard(start, stop)
            if not seqs:
                del self._suspects[series]
        return not self._suspects

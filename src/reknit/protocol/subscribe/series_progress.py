"""The progress of a subscription in every series, and its losses. Repeated events are dropped by a range check."""

from __future__ import annotations

from reknit.ledger import Series
from reknit.seqset import Range, SeqSet


class SeriesProgress:
    """The next seq of every series, and the lost ones.

    >>> progress, series = SeriesProgress(), ("plant/a", b"s")
    >>> progress.advance(series, 5)
    >>> progress.next_of(series, 1), progress.checkpoint(), progress.lose(series, [(5, 9), (7, 9)])
    (5, {'73': 4}, [(5, 9)])
    """

    __slots__ = ("_missed", "_next", "_past", "lost")

    def __init__(self) -> None:
        self._next: dict[Series, int] = {}
        self._past: dict[str, int] = {}
        """The checkpoint in the journal before."""
        self.lost: dict[Series, SeqSet] = {}
        self._missed: dict[Series, tuple[int, str]] = {}
        """The end of the last range that the node said it can't deliver, and its reason."""

    def next_of(self, series: Series, default: int) -> int:
        """The seq after the last one that arrived; `default` for a new series."""
        return self._next.get(series, default)

    def advance(self, series: Series, stop: int) -> None:
        """Events before `stop` arrived."""
        if stop > self._next.get(series, 0):
            self._next[series] = stop
            if series in self.lost:
                self.pass_lost(series)

    def pass_lost(self, series: Series) -> None:
        """Events that are lost do not arrive. Those before them may still: a loss may be reported ahead of them."""
        expected = self._next.get(series, 1)
        for start, stop in self.lost[series].ranges():
            if start <= expected < stop:
                self._next[series] = stop

    def forget(self) -> None:
        """The node has another journal, whose ledger decides what comes: all of it is new. The checkpoint stays."""
        self._past = self.checkpoint()
        self._next.clear()

    def miss(self, series: Series, stop: int, reason: str) -> None:
        """The node can't deliver events before `stop`. They are not lost yet: a cache may have them."""
        self._missed[series] = (stop, reason)

    def reason_of(self, series: Series, start: int, default: str) -> str:
        """Why a gap that begins at `start` can't be filled: the node's reason, if it gave one."""
        stop, reason = self._missed.get(series, (0, default))
        return reason if start < stop else default

    def lose(self, series: Series, ranges: list[Range]) -> list[Range]:
        """Events are lost; returns those that were not lost before."""
        known = self.lost.setdefault(series, SeqSet())
        fresh: list[Range] = []
        for bounds in ranges:
            for low, high in known.missing(*bounds):
                known.add(low, high)
                fresh.append((low, high))
        return fresh

    def checkpoint(self) -> dict[str, int]:
        """{source as hex: the last seq that arrived}."""
        places = {source.hex(): seq - 1 for (_, source), seq in self._next.items()}
        return {
            source: max(places.get(source, 0), self._past.get(source, 0))
            for source in {**self._past, **places}
        }

"""Seqs of many series: a `SeqSet` for each that has some."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.ledger import Series
from reknit.seqset import Range, SeqSet


class SeriesSeqs:
    """Ranges by series. A series without seqs is not in it.

    >>> seqs, series = SeriesSeqs(), ("plant/a", b"s" * 16)
    >>> seqs.add(series, 1, 9)
    >>> seqs.take(series, 3, 5), seqs.within(series, 1, 100)
    ([(3, 5)], [(1, 3), (5, 9)])
    >>> seqs.take(series, 1, 9), series in seqs
    ([(1, 3), (5, 9)], False)
    """

    __slots__ = ("_by_series",)

    def __init__(self) -> None:
        self._by_series: dict[Series, SeqSet] = {}

    def __contains__(self, series: Series) -> bool:
        return series in self._by_series

    def __iter__(self) -> Iterator[tuple[Series, SeqSet]]:
        """In order of topic and source."""
        return iter(sorted(self._by_series.items()))

    def ranges(self) -> list[tuple[Series, int, int]]:
        """All ranges, in order."""
        return [(series, *bounds) for series, seqs in self for bounds in seqs.ranges()]

    def of(self, series: Series) -> SeqSet:
        """A copy of a series' seqs."""
        seqs = self._by_series.get(series)
        return SeqSet() if seqs is None else seqs.copy()

    def add(self, series: Series, start: int, stop: int) -> None:
        seqs = self._by_series.get(series)
        if seqs is None:
            seqs = self._by_series[series] = SeqSet()
        seqs.add(start, stop)

    def within(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that it contains."""
        seqs = self._by_series.get(series)
        return [] if seqs is None else seqs.overlap(start, stop)

    def take(self, series: Series, start: int, stop: int) -> list[Range]:
        """Remove `[start, stop)`; returns the parts that it contained."""
        seqs = self._by_series.get(series)
        if seqs is None:
            return []
        ranges = seqs.overlap(start, stop)
        if ranges:
            seqs.discard(start, stop)
            if not seqs:
                del self._by_series[series]
        return ranges

    def clear(self) -> None:
        self._by_series.clear()

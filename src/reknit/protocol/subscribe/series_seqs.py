"""Seqs of many streams: a `SeqSet` for each that has some."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.ledger import Stream
from reknit.seqset import Range, SeqSet


class StreamSeqs:
    """Ranges by stream. A stream without any is not in it.

    >>> seqs, stream = StreamSeqs(), ("plant/a", b"s" * 16)
    >>> seqs.add(stream, 1, 9)
    >>> seqs.take(stream, 3, 5), seqs.within(stream, 1, 100)
    ([(3, 5)], [(1, 3), (5, 9)])
    >>> seqs.take(stream, 1, 9), stream in seqs
    ([(1, 3), (5, 9)], False)
    """

    __slots__ = ("_by_stream",)

    def __init__(self) -> None:
        self._by_stream: dict[Stream, SeqSet] = {}

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._by_stream

    def __iter__(self) -> Iterator[tuple[Stream, SeqSet]]:
        """In order of topic and source."""
        return iter(sorted(self._by_stream.items()))

    def ranges(self) -> list[tuple[Stream, int, int]]:
        """All of them, in order."""
        return [(stream, *bounds) for stream, seqs in self for bounds in seqs.ranges()]

    def of(self, stream: Stream) -> SeqSet:
        """A copy of a stream's."""
        seqs = self._by_stream.get(stream)
        return SeqSet() if seqs is None else seqs.copy()

    def add(self, stream: Stream, start: int, stop: int) -> None:
        seqs = self._by_stream.get(stream)
        if seqs is None:
            seqs = self._by_stream[stream] = SeqSet()
        seqs.add(start, stop)

    def within(self, stream: Stream, start: int, stop: int) -> list[Range]:
        """Those of `[start, stop)` that are in it."""
        seqs = self._by_stream.get(stream)
        return [] if seqs is None else seqs.overlap(start, stop)

    def take(self, stream: Stream, start: int, stop: int) -> list[Range]:
        """The same, and take them out."""
        seqs = self._by_stream.get(stream)
        if seqs is None:
            return []
        ranges = seqs.overlap(start, stop)
        if ranges:
            seqs.discard(start, stop)
            if not seqs:
                del self._by_stream[stream]
        return ranges

    def clear(self) -> None:
        self._by_stream.clear()

"""What a cache holds, with the fingerprints that an alignment compares. They are kept up to date with every change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import xor
from typing import Final

from xxhash import xxh3_64_intdigest

from reknit.ledger import Series
from reknit.seqset import Range, SeqSet
from reknit.wire.recovery import Span

BUCKETS: Final = 64
_NOTHING: Final = SeqSet()


def fingerprint(series: Series, seqs: SeqSet) -> int:
    """A number for the ranges held of a series; the same ranges give the same number, and 0 stands for none."""
    if not seqs:
        return 0
    text = f"{series[0]}\0{series[1].hex()}\0{seqs.ranges()}"
    return xxh3_64_intdigest(text.encode())


def bucket(series: Series) -> int:
    """The bucket that a series belongs to."""
    return xxh3_64_intdigest(series[0].encode() + b"\0" + series[1]) % BUCKETS


class Holdings:
    """The ranges held of each series, by bucket. Below its floor a series was evicted: nothing is fetched there.

    >>> holdings = Holdings.of({("a", b"s" * 16): SeqSet.from_ranges([(1, 5)])})
    >>> holdings.lacking(("a", b"s" * 16), [(3, 9)])
    [(5, 9)]
    """

    def __init__(self) -> None:
        self._buckets: list[dict[Series, SeqSet]] = [{} for _ in range(BUCKETS)]
        self._floors: dict[Series, int] = {}
        self.fingerprints = [0] * BUCKETS
        """Of each bucket."""

    @classmethod
    def of(cls, held: Mapping[Series, SeqSet], floors: Mapping[Series, int] | None = None) -> Holdings:
        """Holdings of these series."""
        made = cls()
        for series, seqs in held.items():
            made.add(series, seqs.ranges())
        for series, floor in (floors or {}).items():
            made.set_floor(series, floor)
        return made

    @property
    def fingerprint(self) -> int:
        """Of everything."""
        return reduce(xor, self.fingerprints)

    def get(self, series: Series) -> SeqSet:
        """The seqs held of a series."""
        return self._buckets[bucket(series)].get(series, _NOTHING)

    def add(self, series: Series, ranges: Iterable[Range]) -> None:
        """These events are held, too."""
        number = bucket(series)
        seqs = self._buckets[number].setdefault(series, SeqSet())
        self.fingerprints[number] ^= fingerprint(series, seqs)
        for start, stop in ranges:
            seqs.add(start, stop)
        self.fingerprints[number] ^= fingerprint(series, seqs)

    def set_floor(self, series: Series, floor: int) -> None:
        """Events before `floor` were evicted. The highest floor counts."""
        if floor > self._floors.get(series, 1):
            self._floors[series] = floor

    def lacking(self, series: Series, ranges: Iterable[Range]) -> list[Range]:
        """What is not held of these ranges, and was not evicted."""
        held, floor = self.get(series), self._floors.get(series, 1)
        return [
            part
            for start, stop in ranges
            if max(start, floor) < stop
            for part in held.missing(max(start, floor), stop)
        ]

    def spans(self, buckets: Iterable[int]) -> Iterator[Span]:
        """What is held of the series in some buckets, in their order."""
        chosen = {series: seqs for number in set(buckets) for series, seqs in self._buckets[number].items()}
        for series, seqs in sorted(chosen.items()):
            if seqs:
                yield Span(*series, seqs.ranges(), seqs.last)

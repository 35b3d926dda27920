"""A set of seqs as sorted, disjoint, half-open ranges.

A window, a gap, an ack, the events that were seen and those that were settled: all are sets of seqs that consist of
few runs. Two parallel lists hold the starts and stops of the runs; no two runs touch. Adding in order only moves the
last stop.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

__all__ = ["Range", "SeqSet"]

Range = tuple[int, int]
"""`(start, stop)`: from `start` up to, but not including, `stop`."""


class SeqSet:
    """A mutable set of seqs. All ranges are half-open: `add(1, 4)` adds 1, 2 and 3.

    >>> seen = SeqSet()
    >>> seen.add(1, 4), seen.add(6, 9), seen.add(2, 4)
    (True, True, False)
    >>> seen
    SeqSet.from_ranges([(1, 4), (6, 9)])
    >>> 3 in seen, 4 in seen, seen.covers(6, 9), seen.missing(1, 11)
    (True, False, True, [(4, 6), (9, 11)])
    """

    __slots__ = ("_count", "_starts", "_stops")
    __hash__ = None  # type: ignore[assignment]  # mutable

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._count = 0

    @classmethod
    def from_ranges(cls, ranges: Iterable[Range]) -> SeqSet:
        """A set of ranges, which may overlap and be in any order.

        >>> SeqSet.from_ranges([(5, 9), (1, 6)]).ranges()
        [(1, 9)]
        """
        new = cls()
        for start, stop in ranges:
            new.add(start, stop)
        return new

    def copy(self) -> SeqSet:
        """An independent set with the same seqs.

        >>> old = SeqSet.from_ranges([(1, 4)])
        >>> new = old.copy()
        >>> new.add(4, 5), old.last, new.last
        (True, 3, 4)
        """
        new = SeqSet()
        new._starts, new._stops, new._count = self._starts.copy(), self._stops.copy(), self._count
        return new

    # -- changes

    def add(self, start: int, stop: int) -> bool:
        """Add `[start, stop)`; True if any of it was new. Adding in order takes constant time.

        >>> seen = SeqSet.from_ranges([(1, 4)])
        >>> seen.add(1, 4), seen.add(3, 5)
        (False, True)
        """
        if start >= stop:
            return _nothing(start, stop)
        stops = self._stops
        if not stops or start > stops[-1]:
            self._starts.append(start)
            stops.append(stop)
        elif start == stops[-1]:
            stops[-1] = stop
        else:
            return self._merge(start, stop)
        self._count += stop - start
        return True

    def extend(self, start: int, stop: int) -> bool:
        """Add `[start, stop)` if it follows on the last seq; False if it does not, and then nothing is added.

        >>> seen = SeqSet.from_ranges([(1, 4)])
        >>> seen.extend(4, 6), seen.extend(8, 9), seen.ranges()
        (True, False, [(1, 6)])
        """
        stops = self._stops
        if not stops or stops[-1] != start or start >= stop:
            return False
        stops[-1] = stop
        self._count += stop - start
        return True

    def _merge(self, start: int, stop: int) -> bool:
        starts, stops = self._starts, self._stops
        low = bisect_left(stops, start)  # the first run that overlaps or touches
        high = bisect_right(starts, stop)  # one past the last
        if low < high:
            start, stop = min(start, starts[low]), max(stop, stops[high - 1])
        new = stop - start - self._counted(low, high)
        starts[low:high] = [start]
        stops[low:high] = [stop]
        self._count += new
        return new > 0

    def discard(self, start: int, stop: int) -> bool:
        """Remove `[start, stop)`; True if any of it was there.

        >>> seen = SeqSet.from_ranges([(1, 10)])
        >>> seen.discard(4, 6), seen.discard(4, 6), seen.ranges()
        (True, False, [(1, 4), (6, 10)])
        """
        if start >= stop:
            return _nothing(start, stop)
        starts, stops = self._starts, self._stops
        low, high = bisect_right(stops, start), bisect_left(starts, stop)
        if low >= high:
            return False
        kept = [(starts[low], min(start, stops[low])), (max(stop, starts[high - 1]), stops[high - 1])]
        kept = [piece for piece in kept if piece[0] < piece[1]]
        self._count -= self._counted(low, high) - sum(b - a for a, b in kept)
        starts[low:high] = [a for a, _ in kept]
        stops[low:high] = [b for _, b in kept]
        return True

    def clear(self) -> None:
        """Remove everything.

        >>> seen = SeqSet.from_ranges([(1, 10)])
        >>> seen.clear()
        >>> bool(seen)
        False
        """
        self._starts.clear()
        self._stops.clear()
        self._count = 0

    # -- questions

    def covers(self, start: int, stop: int) -> bool:
        """True if every seq of `[start, stop)` is in the set; an empty range always is.

        >>> SeqSet.from_ranges([(1, 10)]).covers(3, 10)
        True
        """
        if start >= stop:
            return not _nothing(start, stop)
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and stop <= self._stops[at]

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and self.covers(seq, seq + 1)

    def overlap(self, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are in the set.

        >>> SeqSet.from_ranges([(1, 4), (6, 9)]).overlap(3, 8)
        [(3, 4), (6, 8)]
        """
        if start >= stop:
            _nothing(start, stop)
            return []
        starts, stops = self._starts, self._stops
        low, high = bisect_right(stops, start), bisect_left(starts, stop)
        return [(max(start, starts[at]), min(stop, stops[at])) for at in range(low, high)]

    def missing(self, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are not in the set: the gaps.

        >>> SeqSet.from_ranges([(1, 4), (6, 9)]).missing(3, 12)
        [(4, 6), (9, 12)]
        """
        gaps = []
        for held_start, held_stop in self.overlap(start, stop):
            if start < held_start:
                gaps.append((start, held_start))
            start = held_stop
        if start < stop:
            gaps.append((start, stop))
        return gaps

    def first_missing(self, start: int) -> int:
        """The lowest seq from `start` on that is not in the set: one past the highest that can be acknowledged.

        >>> SeqSet.from_ranges([(1, 4), (6, 9)]).first_missing(1)
        4
        """
        at = bisect_right(self._starts, start) - 1
        return max(start, self._stops[at]) if at >= 0 else start

    def ranges(self) -> list[Range]:
        """All runs in order. No two touch.

        >>> SeqSet.from_ranges([(6, 9), (1, 4)]).ranges()
        [(1, 4), (6, 9)]
        """
        return list(zip(self._starts, self._stops, strict=True))

    @property
    def count(self) -> int:
        """The number of seqs.

        >>> SeqSet.from_ranges([(1, 4), (6, 9)]).count
        6
        """
        return self._count

    @property
    def range_count(self) -> int:
        """The number of runs: it determines the memory of the set, and limits refer to it.

        >>> SeqSet.from_ranges([(1, 4), (6, 9)]).range_count
        2
        """
        return len(self._starts)

    @property
    def first(self) -> int:
        """The lowest seq, or 0 if the set is empty (seqs start at 1).

        >>> SeqSet.from_ranges([(6, 9)]).first, SeqSet().first
        (6, 0)
        """
        return self._starts[0] if self._starts else 0

    @property
    def last(self) -> int:
        """The highest seq (itself in the set), or 0 if the set is empty.

        >>> SeqSet.from_ranges([(6, 9)]).last, SeqSet().last
        (8, 0)
        """
        return self._stops[-1] - 1 if self._stops else 0

    # -- whole sets

    def union(self, other: SeqSet) -> SeqSet:
        """The seqs in either set; also `|`.

        >>> (SeqSet.from_ranges([(1, 4)]) | SeqSet.from_ranges([(3, 9)])).ranges()
        [(1, 9)]
        """
        return SeqSet.from_ranges(sorted(self.ranges() + other.ranges()))

    def intersection(self, other: SeqSet) -> SeqSet:
        """The seqs in both sets; also `&`.

        >>> (SeqSet.from_ranges([(1, 4)]) & SeqSet.from_ranges([(3, 9)])).ranges()
        [(3, 4)]
        """
        few, many = (self, other) if self.range_count < other.range_count else (other, self)
        return SeqSet.from_ranges(part for run in few.ranges() for part in many.overlap(*run))

    def difference(self, other: SeqSet) -> SeqSet:
        """The seqs in this set and not in the other; also `-`.

        >>> (SeqSet.from_ranges([(1, 9)]) - SeqSet.from_ranges([(3, 5)])).ranges()
        [(1, 3), (5, 9)]
        """
        return SeqSet.from_ranges(part for run in self.ranges() for part in other.missing(*run))

    __or__ = union
    __and__ = intersection
    __sub__ = difference

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SeqSet):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    def __repr__(self) -> str:
        return f"SeqSet.from_ranges({self.ranges()})"

    def _counted(self, low: int, high: int) -> int:
        return sum(self._stops[low:high]) - sum(self._starts[low:high])


def _nothing(start: int, stop: int) -> bool:
    """False for an empty range; raises for a reversed one, which is a mistake in the caller's arithmetic."""
    if start > stop:
        raise ValueError(f"range [{start}, {stop}) ends before it starts; pass (start, stop)")
    return False

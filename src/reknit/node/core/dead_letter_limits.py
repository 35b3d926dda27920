"""How many dead letters wait on a node, and their size: both are bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from reknit.config import LimitSettings
from reknit.node.core.dead_letter_shares import DeadLetterShares, Share
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal

PAGE_SEQS: Final = 1_000
ENTRIES_MAX: Final = 100_000
"""How many batches are read when a node starts; the size of further ones is estimated from these."""


class WaitingDeadLetters:
    """The dead letters of one source that were neither redriven nor dropped.

    >>> from reknit.store.memory import MemoryJournal
    >>> waiting = WaitingDeadLetters(MemoryJournal(), ("dead", b"s" * 16), LimitSettings(dead_letters_max=2))
    >>> waiting.came("plant/a", b"s" * 16, 2, 300), waiting.problem
    (None, '2 dead letters wait (limits.dead_letters_max): redrive or drop some')
    """

    def __init__(self, journal: Journal, series: tuple[str, bytes], limits: LimitSettings) -> None:
        self._journal, self._series = journal, series
        self._count_max = limits.dead_letters_max or 1 << 62
        self._bytes_max = limits.dead_letters_bytes_max or 1 << 62
        self._is_weighed = bool(limits.dead_letters_bytes_max)
        self.count = 0
        self.bytes = 0
        self.version = 0
        """Another one after every change."""
        self.shares = DeadLetterShares(journal, series)

    def begin(self, seqs: SeqSet) -> None:
        """These wait when the node starts."""
        self.count = seqs.count
        self.shares.begin(seqs)
        seen = entries = 0
        for low, high, each in self._parts(seqs.ranges()) if self._is_weighed else ():
            seen, entries = seen + high - low, entries + 1
            self.bytes += int(each * (high - low))
            if entries >= ENTRIES_MAX:
                self.bytes = self.bytes * self.count // seen
                return

    def came(self, topic: str, source: bytes, count: int, size: int) -> None:
        """More dead letters were written, of events of one source."""
        self._grow(count, size if self._is_weighed else 0)
        self.shares.came(topic, source, count, size)

    def _grow(self, count: int, size: int) -> None:
        self.version += 1
        self.count += count
        self.bytes += size

    def back(self, ranges: Iterable[Range]) -> None:
        """Dead letters wait again."""
        ranges = list(ranges)
        self._grow(_count(ranges), self._weigh(ranges))
        self.shares.back(ranges)

    def went(self, ranges: Iterable[Range]) -> None:
        """Dead letters do not wait any more."""
        ranges = list(ranges)
        self.version += 1
        self.count -= _count(ranges)
        self.bytes = max(self.bytes - self._weigh(ranges), 0) if self.count else 0
        if self.count:
            self.shares.went(ranges)
        else:
            self.shares.none_is_left()

    @property
    def problem(self) -> str:
        """The limit that is reached, as a text; empty if none is."""
        if self.count >= self._count_max:
            return f"{self.count:,} dead letters wait (limits.dead_letters_max): redrive or drop some"
        if self.bytes >= self._bytes_max:
            return f"dead letters of {self.bytes:,} bytes wait (limits.dead_letters_bytes_max): redrive or drop some"
        return ""

    @property
    def is_over(self) -> bool:
        """Whether there are twice as many as a limit allows."""
        return self.count >= 2 * self._count_max or self.bytes >= 2 * self._bytes_max

    def fills(self, share: Share, parts: int) -> bool:
        """Whether a share is at least one of so many equal parts of the limit that is reached."""
        if self.count >= self._count_max:
            return share.count * parts >= self._count_max
        return share.bytes * parts >= self._bytes_max

    def too_many(self, seqs: SeqSet) -> list[Range]:
        """The oldest of these, as many as are over a limit."""
        count, size = self.count - self._count_max, float(self.bytes - self._bytes_max)
        found = SeqSet()
        if count > 0 and size <= 0:
            return _first_of(seqs, count)
        for low, high, each in self._parts(seqs.ranges()) if size > 0 else ():
            if count <= 0 and size <= 0:
                break
            many = min(high - low, max(count, -int(-size // each) if size > 0 else 0))
            found.add(low, low + many)
            count, size = count - many, size - many * each
        return found.ranges()

    def _weigh(self, ranges: list[Range]) -> int:
        if not self._is_weighed:
            return 0
        return int(sum(each * (high - low) for low, high, each in self._parts(ranges)))

    def _parts(self, ranges: list[Range]) -> Iterator[tuple[int, int, float]]:
        """(start, stop, bytes of each) of the batches that these dead letters are in."""
        for start, stop in ranges:
            for at in range(start, stop, PAGE_SEQS):
                page = (at, min(at + PAGE_SEQS, stop))
                for entry in self._journal.find(*self._series, *page):
                    head = entry.head
                    low, high = max(head.first, page[0]), min(head.stop, page[1])
                    yield low, high, head.length / head.count


def _count(ranges: list[Range]) -> int:
    return sum(stop - start for start, stop in ranges)


def _first_of(seqs: SeqSet, count: int) -> list[Range]:
    """The first `count` seqs, as ranges."""
    found: list[Range] = []
    for start, stop in seqs.ranges():
        if count <= 0:
            break
        found.append((start, min(stop, start + count)))
        count -= stop - start
    return found

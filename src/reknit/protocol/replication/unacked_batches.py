"""Batches that were given to a node and are not acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from reknit.batch import Batch


class UnackedBatches:
    """By source, in the order in which the sources came, each in seq order."""

    def __init__(self) -> None:
        self._by_source: dict[bytes, deque[Batch]] = {}
        self.bytes = 0

    def __iter__(self) -> Iterator[Batch]:
        return (batch for unacked in self._by_source.values() for batch in unacked)

    def of(self, source: bytes) -> Iterable[Batch]:
        """The batches of one source."""
        return self._by_source.get(source, ())

    def sources(self) -> list[bytes]:
        """The sources that have batches here."""
        return list(self._by_source)

    def add(self, batches: Iterable[Batch]) -> None:
        """Add batches after the others of their sources."""
        for batch in batches:
            self._by_source.setdefault(batch.source, deque()).append(batch)
            self.bytes += batch.head.length

    def sort(self, source: bytes) -> None:
        """Sort batches that were added out of order."""
        self._by_source[source] = deque(sorted(self._by_source[source], key=lambda batch: batch.first))

    def remove(self, source: bytes, stop: int) -> list[Batch]:
        """Forget the batches of a source that end at `stop` or before; returns them."""
        unacked = self._by_source.get(source)
        removed: list[Batch] = []
        while unacked and unacked[0].stop <= stop:
            removed.append(unacked.popleft())
            self.bytes -= removed[-1].head.length
        if unacked is not None and not unacked:
            del self._by_source[source]
        return removed

    def discard(self, batch: Batch) -> bool:
        """Forget one batch. False if it is not here."""
        unacked = self._by_source.get(batch.source, deque[Batch]())
        left = deque(one for one in unacked if one is not batch)
        if len(left) == len(unacked):
            return False
        self.bytes -= batch.head.length
        if left:
            self._by_source[batch.source] = left
        else:
            del self._by_source[batch.source]
        return True

"""The newest part of the log in memory: the staged bytes objects themselves, found by position."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from reknit.entries import Entry, Run
from reknit.frame import Buffer
from reknit.store.log.retention import Segment

ENTRY_BYTES: Final = 256
"""About how much memory an entry with its head takes: for tiny batches more than their bytes."""
SMALL_BYTES: Final = 32 << 10
JOINED_BYTES_MAX: Final = 256 << 10

_position = attrgetter("position")


class Chunk:
    """Frames back to back at `[position, end)`: batches with their entries, or one record without."""

    __slots__ = ("cost_bytes", "data", "end", "entries", "position", "segment")

    def __init__(self, position: int, data: Buffer, entries: Sequence[Entry], segment: Segment) -> None:
        self.position = position
        self.data = data
        self.entries = entries
        self.end = position + len(data)
        self.cost_bytes = len(data) + ENTRY_BYTES * len(entries)
        """How much memory it takes."""
        self.segment = segment

    def within(self, start: int, stop: int) -> Sequence[Entry]:
        """Its batches that lie in `[start, stop)`."""
        if start <= self.position and self.end <= stop:
            return self.entries
        return [entry for entry in self.entries if entry.position >= start and entry.end <= stop]

    def run(self, position: int, stop: int, max_bytes: int) -> Run | None:
        """The whole batches of `[position, stop)` within `max_bytes`, or a single longer one; None if none fits.

        Raises `KeyError` if `position` is not the start of a batch.
        """
        if position == self.position and self.end <= stop and len(self.data) <= max_bytes:
            return Run(position, memoryview(self.data), self.entries, self.end)
        entries = self.entries
        low = bisect_left(entries, position, key=_position)
        if low == len(entries) or entries[low].position != position:
            raise KeyError(position)
        high = bisect_right(entries, min(stop, position + max_bytes), low, key=_end)
        if high == low and entries[low].end <= stop:
            high = low + 1
        if high == low:
            return None
        end = entries[high - 1].end
        data = memoryview(self.data)[position - self.position : end - self.position]
        return Run(position, data, entries[low:high], end)


_end = attrgetter("end")


def joined(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Join small chunks of batches, so that later reads, sends and writes are fewer and larger."""
    out: list[Chunk] = []
    pile: list[Chunk] = []
    pile_bytes = 0
    for chunk in chunks:
        size = len(chunk.data)
        if not chunk.entries or size > SMALL_BYTES or pile_bytes + size > JOINED_BYTES_MAX:
            _flush(pile, out)
            pile_bytes = 0
        if chunk.entries and size <= SMALL_BYTES:
            pile.append(chunk)
            pile_bytes += size
        else:
            out.append(chunk)
    _flush(pile, out)
    return out


def _flush(pile: list[Chunk], out: list[Chunk]) -> None:
    if len(pile) < 2:
        out += pile
    else:
        entries = [entry for chunk in pile for entry in chunk.entries]
        out.append(
            Chunk(pile[0].position, b"".join([chunk.data for chunk in pile]), entries, pile[0].segment)
        )
    pile.clear()


class Tail:
    """Contiguous chunks in order; the oldest is evicted first. Not thread-safe: the journal's lock guards it."""

    def __init__(self, bytes_max: int | None) -> None:
        self._bytes_max = bytes_max
        self._positions: list[int] = []
        self._chunks: list[Chunk] = []
        self.bytes = 0

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add the chunks that follow; evict the oldest over the limit, but never all."""
        self._chunks += chunks
        self._positions += [chunk.position for chunk in chunks]
        self.bytes += sum([chunk.cost_bytes for chunk in chunks])
        if self._bytes_max is not None and self.bytes > self._bytes_max:
            count, size = 0, self.bytes
            while size > self._bytes_max and count < len(self._chunks) - 1:
                size -= self._chunks[count].cost_bytes
                count += 1
            self._drop(count)

    def at(self, position: int) -> Chunk | None:
        """The chunk that holds a position."""
        index = bisect_right(self._positions, position) - 1
        if index < 0:
            return None
        chunk = self._chunks[index]
        return chunk if position < chunk.end else None

    def covering(self, start: int, stop: int) -> list[Chunk]:
        """The chunks that hold `[start, stop)`; none unless the first one holds `start`."""
        low = bisect_right(self._positions, start) - 1
        if low < 0 or start >= self._chunks[low].end:
            return []
        return self._chunks[low : bisect_left(self._positions, stop)]

    def between(self, start: int, stop: int) -> list[Chunk]:
        """The chunks that start in `[start, stop)`."""
        return self._chunks[bisect_left(self._positions, start) : bisect_left(self._positions, stop)]

    def drop_before(self, position: int) -> list[Chunk]:
        """Drop the chunks that start before a position; returns the dropped ones."""
        return self._drop(bisect_left(self._positions, position))

    def _drop(self, count: int) -> list[Chunk]:
        dropped = self._chunks[:count]
        del self._chunks[:count], self._positions[:count]
        self.bytes -= sum([chunk.cost_bytes for chunk in dropped])
        return dropped

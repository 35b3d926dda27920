"""Entries of a journal: the places of batches, runs of batches as they are read, and ranges that were removed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reknit.batch_layout import Head


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The place of a batch in the journal."""

    position: int
    head: Head

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.head.length


class Run(msgspec.Struct, frozen=True, gc=False):
    """Whole batches back to back: `data` is exactly the entries' frames and starts at `position`.

    So entries `[i, j)` are `data[entries[i].position - position : entries[j - 1].end - position]`. `next_position` is
    where to continue; it is past the data if records or a hole follow. Never change the list or the bytes: all
    readers of the same place share them.
    """

    position: int
    data: memoryview
    entries: Sequence[Entry]
    next_position: int
    lost: tuple[Removed, ...] = ()
    """Events before `position` that the read skipped, because their bytes are damaged."""

    def cut(self, start: int, stop: int) -> memoryview:
        """The bytes of entries `[start, stop)`, without a copy."""
        entries, base = self.entries, self.position
        return self.data[entries[start].position - base : entries[stop - 1].end - base]


class Removed(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series that the journal no longer holds."""

    topic: str
    source: bytes
    start: int
    stop: int


class UnreadablePart(msgspec.Struct, frozen=True):
    """Positions `[position, stop)` of a journal whose bytes are damaged, and the events that are lost with them."""

    position: int
    stop: int
    where: str
    """The file, and the byte in it."""
    why: str
    lost: tuple[Removed, ...] = ()

    def __str__(self) -> str:
        events = sum(gone.stop - gone.start for gone in self.lost)
        return f"{self.where}: {self.stop - self.position} bytes can't be read ({self.why}), {events} events are lost"

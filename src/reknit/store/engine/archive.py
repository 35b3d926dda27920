"""The archive: the part of a journal that is not in memory. A memory journal has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reknit.store.engine.damage_finder import DamageFinder
from reknit.store.engine.log_state import LogState
from reknit.store.engine.segments import SegmentChunks
from reknit.store.index.index import Index
from reknit.store.index.series import Extent, SeriesExtents
from reknit.store.log.frames import Damaged
from reknit.store.log.tail import Chunk


class LogArchive(Protocol):
    """Where queries find chunks, extents and time marks that are no longer in memory."""

    def load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        """The first chunk at or after a position, or None if there is none before `stop`.

        Raises `Damaged` if there is no valid frame; then the position is in an unreadable part of the state.
        """
        ...

    def extents(self, series: SeriesExtents, start: int, stop: int) -> list[Extent]:
        """The extents that hold any of `[start, stop)`."""
        ...

    def mark_before(self, time_us: int) -> int:
        """The position of the last time mark at or before a time, or 0."""
        ...

    def indexed_to(self) -> int:
        """Up to where the archive can be searched by seq."""
        ...


class NoArchive:
    """A memory journal has everything in memory."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        raise AssertionError(f"position {position} of a memory journal must be in memory")

    def extents(self, series: SeriesExtents, start: int, stop: int) -> list[Extent]:
        return []

    def mark_before(self, time_us: int) -> int:
        return 0

    def indexed_to(self) -> int:
        return self._state.end


class SegmentArchive:
    """Segment files and their index. `on_removed` is called when a file turns out to be removed."""

    def __init__(
        self,
        state: LogState,
        chunks: SegmentChunks,
        finder: DamageFinder,
        index: Index,
        indexed_to: Callable[[], int],
        on_removed: Callable[[], object] = bool,
    ) -> None:
        self._state, self._chunks, self._finder, self._index = state, chunks, finder, index
        self._indexed_to, self._on_removed = indexed_to, on_removed

    def load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        place = self._state.segment_at(position, stop)
        if place is None:
            return None
        self._state.check_open()
        segment, position = place
        try:
            return self._chunks.load(segment, position, min(stop, segment.end), max_bytes)
        except FileNotFoundError:
            self._on_removed()
            if position < self._state.start:  # removed at this moment
                raise self._state.gone() from None
            if segment in self._state.segments:
                self._finder.examine_missing(segment)
            raise Damaged(position, "the file is missing", []) from None
        except Damaged:
            self._finder.examine(segment, position)
            raise

    def extents(self, series: SeriesExtents, start: int, stop: int) -> list[Extent]:
        self._state.check_open()
        return self._index.extents(series, start, stop)

    def mark_before(self, time_us: int) -> int:
        return self._index.mark_before(time_us)

    def indexed_to(self) -> int:
        return self._indexed_to()

"""Applying retention to a log on disk: remove the oldest segment files, and then their part of the index."""

from __future__ import annotations

from contextlib import suppress

from reknit.entries import Removed
from reknit.errors import JournalFull
from reknit.store.engine.checkpointer import Checkpointer
from reknit.store.engine.log_state import LogState
from reknit.store.index.index import Index
from reknit.store.index.series import remove
from reknit.store.log.retention import Retention, removable
from reknit.store.log.segment_files import SegmentFiles, segment_path, sync_directory


class Trimmer:
    """Removes whole segments. The file goes first and its index entries after, so that a full disk gets room."""

    def __init__(
        self,
        state: LogState,
        retention: Retention,
        checkpointer: Checkpointer,
        files: SegmentFiles,
        index: Index,
    ) -> None:
        self._state, self.retention, self._checkpointer = state, retention, checkpointer
        self._files, self._index = files, index
        self.is_save_wanted = False
        """Whether more could be removed if the index covered it."""

    def saved(self) -> None:
        """The index was saved: the next `trim` finds out whether that was enough."""
        self.is_save_wanted = False

    def is_due(self, now_us: int, floor: int | None) -> bool:
        """Whether `trim` may find something to remove."""
        return not self._state.is_closed and self._removable(now_us, floor) > 0

    def trim(self, now_us: int, floor: int | None, saves: bool) -> list[Removed]:
        """Apply retention, never past position `floor`; returns the removed events.

        The part of the log that the index does not cover yet stays: its records may not be in the saved ledger.
        """
        if not self.is_due(now_us, floor):
            return []
        if saves:
            with suppress(JournalFull):
                self._checkpointer.checkpoint()
        saved_to = self._checkpointer.saved_to
        count = self._removable(now_us, saved_to if floor is None else min(floor, saved_to))
        self.is_save_wanted = count < self._removable(now_us, floor)
        return self._remove(count) if count else []

    def _removable(self, now_us: int, floor: int | None) -> int:
        state = self._state
        with state.lock:
            floor = state.end if floor is None else min(floor, state.end)
            return removable(state.segments, self.retention, now_us, floor)

    def _remove(self, count: int) -> list[Removed]:
        state, directory = self._state, self._files.directory
        with state.lock:
            gone = state.segments[:count]
            start = state.segments[count].start
        held = self._index.held(state.series, gone[0].start, start)
        with state.lock:
            state.dropped(count)
            removed = remove(held)
        for segment in gone:
            self._files.forget(segment.start)
            segment_path(directory, segment.start).unlink(missing_ok=True)
        sync_directory(directory)
        self._checkpointer.removed(gone[0].start, start)
        with suppress(JournalFull):
            self._checkpointer.finish_removals()
        return removed

"""Checkpoints: save the index and the ledger, so that opening replays only the log after them.

A checkpoint must hold exactly what the log holds up to its position. The ledger is ahead of the log by everything
staged, so a snapshot is taken at the staged end, and written only after the log was synced that far.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Final

from reknit.entries import Removed
from reknit.store.engine.commit import LogCommitter
from reknit.store.engine.journal_clock import JournalClock
from reknit.store.engine.log_state import LogState
from reknit.store.index.index import Index
from reknit.store.index.rows import Snapshot, segment_row
from reknit.store.index.snapshot import AccountNumbers, UnsavedChanges, fill

STEP_US: Final = 1_000_000
"""The time of day stepped, or drifted, by so much that the index is saved for this alone."""


class Checkpointer:
    """Saves the changes since the last checkpoint. Anyone who changes the index holds `lock`."""

    def __init__(
        self,
        state: LogState,
        committer: LogCommitter,
        index: Index,
        numbers: AccountNumbers,
        clock: JournalClock,
        saved_to: int,
        lost: Sequence[Removed],
        removals: list[tuple[int, int]],
    ) -> None:
        self._state, self._committer, self._index, self._numbers = state, committer, index, numbers
        self._clock, self._lost = clock, lost
        self._offset_us = clock.offset_us()
        self._unsaved = UnsavedChanges()
        self._removals = removals
        """Parts of the log that are gone and still in the index."""
        self.saved_to = saved_to
        """The index is complete up to this position; a replay would start here."""
        self.lock = RLock()

    @property
    def unsaved_bytes(self) -> int:
        """How many bytes a replay would have to read."""
        return self._state.staged_end - self.saved_to

    def checkpoint(self) -> int:
        """Commit, then save index and ledger as of then; returns the position that a replay would start from."""
        with self.lock:
            if self._state.is_closed:
                return self.saved_to
            snapshot = self._snapshot()
            self._committer.commit()
            assert snapshot is None or self._state.synced_end >= snapshot.to
            self.finish_removals()
            if snapshot is not None:
                self._save(snapshot)
            return self.saved_to

    def _save(self, snapshot: Snapshot) -> None:
        self._index.save(snapshot)
        state = self._state
        with state.lock:
            state.series.saved(snapshot.extents)
            del state.marks[: len(snapshot.marks) - 1]
            self.saved_to, self._offset_us = snapshot.to, snapshot.offset_us
        self._unsaved = UnsavedChanges()

    def _snapshot(self) -> Snapshot | None:
        state = self._state
        with state.lock:
            self._unsaved.take(state.ledger)
            offset_us = self._clock.offset_us()
            is_stepped = abs(offset_us - self._offset_us) >= STEP_US
            if not self._unsaved and self.saved_to == state.staged_end and not is_stepped:
                return None
            snapshot = Snapshot(
                to=state.staged_end,
                start=state.start,
                extents=state.series.seal(),
                segments=[segment_row(one) for one in state.segments if one.end >= self.saved_to],
                marks=state.marks.copy(),
                paused=sorted(state.paused),
                offset_us=offset_us,
                lost=self._lost,
            )
            fill(snapshot, self._unsaved, state.ledger, state.series, self._numbers)
            return snapshot

    def removed(self, low: int, high: int) -> None:
        """The log between two positions is gone: the index is to forget it."""
        self._removals.append((low, high))

    def finish_removals(self) -> None:
        """Take removed parts of the log out of the index. On a full disk the next call tries again."""
        while self._removals:
            low, high = self._removals[0]
            self._index.remove(low, high, self._state.start, self._state.series)
            del self._removals[0]

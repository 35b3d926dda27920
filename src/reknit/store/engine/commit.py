"""Committing: write the staged chunks, then make them visible to readers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Protocol

from reknit.store.engine.log_state import LogState
from reknit.store.engine.staging import StagingArea
from reknit.store.log.retention import Segment
from reknit.store.log.tail import Chunk, joined

_segment = attrgetter("segment")


class LogWriter(Protocol):
    """Where a commit writes to."""

    @property
    def problem(self) -> str:
        """Why nothing more can be written until the journal is opened again; empty if it can."""
        ...

    def write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        """Write chunks that follow the last written one: all of them, or none."""
        ...

    def sync(self) -> None:
        """Sync earlier writes that were not synced."""
        ...

    def share_end(self, end: int, synced_end: int) -> None:
        """Tell other processes how far they may read."""
        ...


class LogCommitter:
    """Writes the staged chunks. One commit runs at a time."""

    def __init__(self, state: LogState, staging: StagingArea, writer: LogWriter) -> None:
        self._state, self._staging, self._writer = state, staging, writer
        self.lock = Lock()

    @property
    def problem(self) -> str:
        """Why nothing more can be committed until the journal is opened again; empty if it can."""
        return self._writer.problem

    def commit(self, sync: bool = True) -> int:
        """Write everything staged, then make it visible; returns the new end. With `sync` it is on disk then.

        If it fails, unwritten chunks stay staged in their order, and the next commit tries again.
        """
        with self.lock:
            if not self._staging.is_empty:
                self._state.check_open()
            self._commit(sync)
            return self._state.end

    def _commit(self, sync: bool) -> None:
        state, writer = self._state, self._writer
        groups = [(segment, joined(chunks)) for segment, chunks in groupby(self._staging.take(), _segment)]
        for index, (segment, chunks) in enumerate(groups):
            try:
                writer.write(segment, chunks, sync)
            except BaseException:
                self._staging.put_back([chunk for _, rest in groups[index:] for chunk in rest])
                raise
            with state.lock:
                state.written(chunks, sync)
            writer.share_end(state.end, state.synced_end)
        if sync and state.synced_end < state.end:
            writer.sync()
            state.synced()
            writer.share_end(state.end, state.synced_end)

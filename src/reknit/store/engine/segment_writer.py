"""Writing segment files: one appender at a time, a new file for every segment, and the end that readers may see."""

from __future__ import annotations

from collections.abc import Sequence

from reknit.environment import DiskFiles
from reknit.store.directory.journal_files import JournalFiles
from reknit.store.engine.log_state import LogState
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import Appender, explained, segment_path
from reknit.store.log.tail import Chunk


class SegmentWriter:
    """Appends chunks to the file of their segment."""

    def __init__(self, held: JournalFiles, state: LogState, files: DiskFiles, preallocate_bytes: int) -> None:
        self._directory = held.layout.log
        self._files = files
        self._preallocate_bytes = preallocate_bytes
        self._shared = held.shared
        last = state.segments[-1]
        self._appender = self._open(last, last.end - last.start)
        self.sync()  # a killed process may not have synced its last entries, and they are about to be served
        self.share_end(state.end, state.synced_end)

    def _open(self, segment: Segment, size: int = 0) -> Appender:
        path = segment_path(self._directory, segment.start)
        return Appender(path, segment.start, size, self._files, self._preallocate_bytes)

    def write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        """Write chunks at the end of the log: all of them, or none."""
        if segment.start != self._appender.start:
            self._roll(segment)
        buffers = [chunk.data for chunk in chunks]
        self._appender.append(buffers, chunks[-1].end - chunks[0].position, sync)

    def _roll(self, segment: Segment) -> None:
        """Begin a file. The previous one is complete and synced before the new one gets its first byte."""
        try:
            new = self._open(segment)
        except OSError as error:
            raise explained(error, self._directory) from error
        try:
            self._appender.finish()
        except BaseException:
            new.close()
            raise
        self._appender.close()
        self._appender = new

    def sync(self) -> None:
        """Sync earlier writes that were not synced."""
        self._appender.sync()

    @property
    def problem(self) -> str:
        """Why nothing more can be written until the journal is opened again; empty if it can."""
        return self._appender.problem

    def share_end(self, end: int, synced_end: int) -> None:
        """Tell other processes how far they may read."""
        self._shared.share(end, synced_end)

    def finish(self) -> None:
        """Nothing more is written: cut off the preallocated rest, and sync."""
        self._appender.finish()

    def close(self) -> None:
        self._appender.close()

"""The journal on disk: a log of files that is the truth, an index in LMDB, and the newest part in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from reknit import environment
from reknit.entries import Removed
from reknit.environment import DiskFiles
from reknit.errors import JournalFull
from reknit.store.directory.journal_files import JournalFiles, closing_on_error
from reknit.store.directory.layout import Layout
from reknit.store.directory.opened_log import OpenedLog
from reknit.store.directory.opening import open_log
from reknit.store.engine.archive import SegmentArchive
from reknit.store.engine.checkpointer import Checkpointer
from reknit.store.engine.composed import ComposedJournal
from reknit.store.engine.damage_finder import DamageFinder
from reknit.store.engine.journal_clock import JournalClock, make_clock
from reknit.store.engine.log_state import LogState
from reknit.store.engine.segment_writer import SegmentWriter
from reknit.store.engine.segments import SegmentChunks
from reknit.store.engine.staging import MARK_US, STAGED_BYTES_MAX, SegmentLimits, StagingArea
from reknit.store.engine.trimmer import Trimmer
from reknit.store.index.lmdb_environment import MAP_BYTES
from reknit.store.index.snapshot import AccountNumbers
from reknit.store.log.retention import Retention
from reknit.store.log.segment_files import PREALLOCATE_BYTES

SEGMENT_BYTES: Final = 256 << 20
TAIL_CACHE_BYTES: Final = 64 << 20


class DiskJournal(ComposedJournal):
    """Stores everything in a directory.

    One process at a time writes it; `open_reader` reads it from others.

    >>> from tempfile import TemporaryDirectory
    >>> from reknit.batch import Batch
    >>> batch = Batch.build(bytes(16), "plant/temp", 1, [b"21.5", b"21.6"], time_us=1)
    >>> with TemporaryDirectory() as directory:
    ...     journal = DiskJournal(directory)
    ...     position = journal.stage(batch.data, [batch.head])
    ...     end = journal.commit()
    ...     journal.close()
    ...     again = DiskJournal(directory)
    ...     found = again.find("plant/temp", bytes(16), 2, 3)
    ...     again.close()
    >>> (position, end == len(batch.data), found[0].head.first, str(again.report))
    (0, True, 1, 'closed cleanly')
    """

    def __init__(
        self,
        directory: Path | str,
        retention: Retention | None = None,
        *,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        segment_bytes: int = SEGMENT_BYTES,
        tail_cache_bytes: int = TAIL_CACHE_BYTES,
        preallocate_bytes: int = PREALLOCATE_BYTES,
        index_map_bytes: int = MAP_BYTES,
        now_us: Callable[[], int] = environment.time_us,
        elapsed: Callable[[], float] | None = None,
        mark_us: int = MARK_US,
        files: DiskFiles | None = None,
    ) -> None:
        retention = retention or Retention()
        if retention.bytes_max is not None:
            segment_bytes = max(4096, min(segment_bytes, retention.bytes_max // 4))
        self._clock = make_clock(now_us, elapsed)
        self.files = JournalFiles(Layout(Path(directory)), index_map_bytes)
        state = LogState(str(directory), tail_cache_bytes)
        limits = SegmentLimits(segment_bytes, retention)
        staging = StagingArea(
            state,
            limits,
            staged_bytes_max=staged_bytes_max,
            now_us=now_us,
            clock=self._clock,
            mark_us=mark_us,
        )
        with closing_on_error(self.files):
            opened = open_log(self.files)
            last_mark_us = max(now_us(), self.files.index.last_mark_us())
            _continue(state, opened, self._clock, last_mark_us)
            staging.resume(last_mark_us)
            self._writer = SegmentWriter(
                self.files, state, files or environment.current().files, preallocate_bytes
            )
        index, segments = self.files.index, self.files.segments
        super().__init__(
            self.files.id,
            state,
            staging,
            writer=self._writer,
            archive=SegmentArchive(
                state,
                SegmentChunks(segments),
                DamageFinder(state, segments, index),
                index,
                lambda: self._checkpointer.saved_to,
            ),
            now_us=now_us,
            report=opened.report,
            origin=self.files.origin,
        )
        numbers = AccountNumbers(opened.account_numbers)
        self._checkpointer = Checkpointer(
            state,
            self.committer,
            index,
            numbers,
            self._clock,
            saved_to=opened.indexed_to,
            lost=opened.lost,
            removals=opened.removals,
        )
        self._trimmer = Trimmer(state, retention, self._checkpointer, segments, index)
        with closing_on_error(self.files), suppress(JournalFull):
            self.checkpoint()  # so that the next opening need not replay this part; on a full disk it has to wait

    @property
    def unsaved_bytes(self) -> int:
        """How many bytes a replay would have to read."""
        return self._checkpointer.unsaved_bytes

    @property
    def is_save_wanted(self) -> bool:
        """Whether `trim` could remove more after a checkpoint."""
        return self._trimmer.is_save_wanted

    def checkpoint(self) -> int:
        """Commit, then save index and ledger as of then; returns the position that a replay would start from."""
        saved_to = self._checkpointer.checkpoint()
        self._trimmer.saved()
        return saved_to

    def expired_to(self) -> int:
        """The position before which retention would remove everything, if nobody needed it."""
        return self.state.expired_to(self._trimmer.retention, self._clock.now_us())

    def trim(self, now_us: int | None = None, floor: int | None = None, waits: bool = True) -> list[Removed]:
        """Apply retention, never past position `floor`; returns the removed events."""
        now_us = self._clock.now_us() if now_us is None else now_us
        self.staging.begin_segment_if_old(now_us)
        if not self._trimmer.is_due(now_us, floor) or not self._checkpointer.lock.acquire(blocking=waits):
            return []
        try:
            return self._trimmer.trim(now_us, floor, saves=waits)
        finally:
            self._checkpointer.lock.release()

    def close(self) -> None:
        """Commit everything staged, save the index, and close.

        Raises if something could not be stored, after everything is closed.
        """
        with self._checkpointer.lock:
            if self.state.is_closed:
                return
            try:
                self.checkpoint()
                self._writer.finish()
            finally:
                with self.committer.lock:
                    self.state.close()
                    self._writer.close()
                self.files.close()


def _continue(state: LogState, opened: OpenedLog, clock: JournalClock, last_mark_us: int) -> None:
    """Continue the log that was found."""
    state.load(opened.ledger, opened.paused, opened.series, opened.segments)
    state.series.begin_segment(state.segments[-1].start)
    clock.resume(opened.offset_us, max(segment.last_us for segment in state.segments))
    now_us = clock.now_us()
    for segment in state.segments:  # one that was replayed has no times yet
        segment.stored_between(segment.first_us or now_us, segment.last_us or now_us)
    state.begin_at(opened.end, [(last_mark_us, opened.end)])

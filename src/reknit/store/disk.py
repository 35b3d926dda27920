"""The journal on disk: a log of files that is the truth, an index in LMDB, the newest part in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from reknit.entries import Removed
from reknit.errors import Closed, Gone, JournalFull
from reknit.store.directory import DirectoryLock, Layout, SharedEnd
from reknit.store.index import Index
from reknit.store.lmdb_environment import MAP_BYTES
from reknit.store.log import (
    PREALLOCATE_BYTES,
    Appender,
    Files,
    OsFiles,
    SegmentFiles,
    explained,
    segment_path,
    sync_directory,
)
from reknit.store.memory import STAGED_BYTES_MAX, forget
from reknit.store.opening import Opened, open_log
from reknit.store.reading import wall_clock_us
from reknit.store.retention import Retention, Segment, removable
from reknit.store.rows import Snapshot, segment_row
from reknit.store.segments import SegmentChunks
from reknit.store.series import Extent, Stream
from reknit.store.snapshot import AccountNumbers, Dirty, fill
from reknit.store.staging import MARK_US, Staging
from reknit.store.tail import Chunk

SEGMENT_BYTES: Final = 256 << 20
TAIL_CACHE_BYTES: Final = 64 << 20


class DiskJournal(Staging):
    """Keeps everything in a directory.

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
        now_us: Callable[[], int] = wall_clock_us,
        mark_us: int = MARK_US,
        files: Files | None = None,
    ) -> None:
        retention = retention or Retention()
        if retention.bytes_max is not None:
            segment_bytes = max(4096, min(segment_bytes, retention.bytes_max // 4))
        super().__init__(
            str(directory),
            retention=retention,
            staged_bytes_max=staged_bytes_max,
            segment_bytes=segment_bytes,
            tail_bytes_max=tail_cache_bytes,
            now_us=now_us,
            mark_us=mark_us,
        )
        self._files = files or OsFiles()
        self._preallocate_bytes = preallocate_bytes
        self._index_map_bytes = index_map_bytes
        self._layout = Layout(Path(directory))
        self._save_lock = Lock()
        self._dirty = Dirty()
        self._removals: list[tuple[int, int]] = []
        try:
            self._layout.root.mkdir(parents=True, exist_ok=True)
            self._directory_lock = DirectoryLock(self._layout.lock)
        except OSError as error:
            raise explained(error, self._layout.root) from error
        try:
            self._id = self._layout.create().id
            self._open()
        except OSError as error:
            self._directory_lock.release()
            raise explained(error, self._layout.root) from error
        except BaseException:
            self._directory_lock.release()
            raise

    def _open(self) -> None:
        self._shared = SharedEnd(self._layout.end, writable=True)
        self._reading = SegmentFiles(self._layout.log)
        self._index = Index(self._layout.index, map_bytes=self._index_map_bytes)
        self._chunks = SegmentChunks(self._reading, self._index)
        try:
            opened = open_log(self._layout, self._index, self._reading, self._shared.read(), self._now_us())
            self._take_over(opened)
        except BaseException:
            self._index.close()
            self._reading.close()
            self._shared.close()
            raise
        # What was replayed need not be replayed again; on a full disk that has to wait.
        with suppress(JournalFull):
            self.checkpoint()

    def _take_over(self, opened: Opened) -> None:
        self._ledger, self._paused, self._report = opened.ledger, opened.paused, opened.report
        self._streams = opened.streams
        self._segments = opened.segments
        self._numbers = AccountNumbers(opened.account_numbers)
        self._kept_us = max(self._now_us(), *(segment.last_us for segment in self._segments))
        self._marks = [(self._kept_us, opened.end)]
        self._saved_to = opened.indexed_to
        self._staged_end = self._end = opened.end
        self._removals += opened.removals
        last = self._segments[-1]
        self._streams.segment_start = last.start
        self._appender = self._appender_for(last, last.end - last.start)
        self._appender.sync()  # what a killed process wrote may not be on disk yet, and is about to be served
        self._synced_end = self._end
        self._share_end()

    def _appender_for(self, segment: Segment, size: int = 0) -> Appender:
        path = segment_path(self._layout.log, segment.start)
        return Appender(path, segment.start, size, self._files, self._preallocate_bytes)

    # -- writing

    def _write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        if segment.start != self._appender.start:
            self._roll(segment)
        buffers = [chunk.data for chunk in chunks]
        self._appender.append(buffers, chunks[-1].end - chunks[0].position, sync)

    def _roll(self, segment: Segment) -> None:
        """Begin a file. The one before is whole and synced before the new one gets its first byte."""
        try:
            new = self._appender_for(segment)
        except OSError as error:
            raise explained(error, self._layout.log) from error
        try:
            self._appender.finish()
        except BaseException:
            new.close()
            raise
        self._appender.close()
        self._appender = new

    def _sync(self) -> None:
        self._appender.sync()

    def _share_end(self) -> None:
        self._shared.share(self._end, self._synced_end)

    # -- reading what is not in memory

    def _load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        place = self._segment_at(position, stop)
        if place is None:
            return None
        self._check_open()
        segment, position = place
        try:
            return self._chunks.load(segment, position, min(stop, segment.end), max_bytes)
        except FileNotFoundError:  # removed at this very moment
            raise Gone(self.start, f"the journal in {self._where}") from None

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the journal in {self._where}")

    def _saved_extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        self._check_open()
        return self._index.extents(stream, start, stop)

    def _saved_mark(self, time_us: int) -> int:
        return self._index.mark_before(time_us)

    def _indexed_to(self) -> int:
        return self._saved_to

    # -- the index

    @property
    def unsaved_bytes(self) -> int:
        """So much a replay would have to read."""
        return self._staged_end - self._saved_to

    def checkpoint(self) -> int:
        """Commit, then save index and ledger as of then.

        Gives the position that a replay would start from.
        """
        with self._save_lock:
            return self._saved_to if self._closed else self._checkpoint()

    def _checkpoint(self) -> int:
        snapshot = self._snapshot()
        self.commit()
        assert snapshot is None or self._synced_end >= snapshot.to
        self._finish_removals()
        if snapshot is None:
            return self._saved_to
        self._index.save(snapshot)
        with self._lock:
            self._streams.saved(snapshot.extents)
            del self._marks[: len(snapshot.marks) - 1]
            self._saved_to = snapshot.to
        self._dirty = Dirty()
        return snapshot.to

    def _snapshot(self) -> Snapshot | None:
        with self._lock:
            self._dirty.take(self._ledger)
            if not self._dirty and self._saved_to == self._staged_end:
                return None
            segments = [segment_row(one) for one in self._segments if one.end >= self._saved_to]
            snapshot = Snapshot(
                to=self._staged_end,
                start=self.start,
                extents=self._streams.seal(),
                segments=segments,
                marks=self._marks.copy(),
                paused=sorted(self._paused),
            )
            fill(snapshot, self._dirty, self._ledger, self._streams, self._numbers)
            return snapshot

    # -- retention

    def trim(self, now_us: int | None = None, floor: int | None = None) -> list[Removed]:
        """Apply retention, never past position `floor`; gives what was removed.

        A file goes first and its index after, so that room can be made on a full disk. What the index does
        not cover yet stays: its records may not have reached the saved ledger.
        """
        now_us = self._now_us() if now_us is None else now_us
        with self._save_lock:
            self._begin_segment_if_old(now_us)
            if self._closed or not self._removable(now_us, floor):
                return []
            with suppress(JournalFull):
                self._checkpoint()
            count = self._removable(now_us, self._saved_to if floor is None else min(floor, self._saved_to))
            return self._remove(count) if count else []

    def _removable(self, now_us: int, floor: int | None) -> int:
        with self._lock:
            floor = self._end if floor is None else min(floor, self._end)
            return removable(self._segments, self._retention, now_us, floor)

    def _remove(self, count: int) -> list[Removed]:
        with self._lock:
            gone = self._segments[:count]
            start = self._segments[count].start
        held = self._index.held(self._streams, gone[0].start, start)
        with self._lock:
            del self._segments[:count]
            self._tail.drop_before(start)
            removed = forget(held)
        for segment in gone:
            self._reading.forget(segment.start)
            segment_path(self._layout.log, segment.start).unlink(missing_ok=True)
        sync_directory(self._layout.log)
        self._removals.append((gone[0].start, start))
        with suppress(JournalFull):
            self._finish_removals()
        return removed

    def _finish_removals(self) -> None:
        """Take what was removed out of the index; on a full disk this is tried again later."""
        while self._removals:
            low, high = self._removals[0]
            self._index.remove(low, high, self.start, self._streams)
            del self._removals[0]

    def close(self) -> None:
        """Keep what is staged, save the index, close.

        What can't be kept is an error, after everything is closed.
        """
        with self._save_lock:
            if self._closed:
                return
            try:
                self._checkpoint()
                self._appender.finish()
            finally:
                with self._commit_lock:
                    self._closed = True
                    self._appender.close()
                self._reading.close()
                self._index.close()
                self._shared.close()
                self._directory_lock.release()

"""Writing a journal: what every kind of it does the same way.

stage       loop thread      gives positions, indexes, books into the ledger; no I/O
commit      commit thread    writes what is staged, then makes it visible
checkpoint  any thread       saves index and ledger
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Final

from reknit.batch import Head
from reknit.entries import Removed
from reknit.errors import Closed, JournalFull
from reknit.frame import Buffer
from reknit.records import Record, apply, encode, note_paused
from reknit.store.journal import OpenReport
from reknit.store.reading import Reading
from reknit.store.retention import Retention, Segment
from reknit.store.tail import Chunk, joined

_SEGMENT_BYTES_MIN: Final = 4096
MARK_US: Final = 1_000_000
"""How finely time is indexed: at most one mark in so many microseconds."""

_segment = attrgetter("segment")


class Staging(Reading):
    """A journal that can be written. A subclass says where the bytes go."""

    def __init__(
        self,
        where: str,
        *,
        retention: Retention,
        staged_bytes_max: int,
        segment_bytes: int,
        tail_bytes_max: int | None,
        now_us: Callable[[], int],
        mark_us: int,
    ) -> None:
        super().__init__(where, tail_bytes_max, now_us)
        self._retention = retention
        self._staged_bytes_max = staged_bytes_max
        self._segment_bytes = segment_bytes
        self._segment_events = (retention.count_max or 0) // 4 or 1 << 62
        self._age_us = int((retention.age_s_max or 0) * 1e6) or 1 << 62
        self._mark_us = max(1, mark_us)
        self._kept_us = 0
        self._commit_lock = Lock()
        self._closed = False
        self._report = OpenReport()
        self._staged: list[Chunk] = []
        self._staged_end = self._synced_end = 0

    @property
    def report(self) -> OpenReport:
        """What opening found."""
        return self._report

    @property
    def staged_end(self) -> int:
        """The position after the last that was staged."""
        return self._staged_end

    @property
    def staged_bytes(self) -> int:
        """How much waits for a commit."""
        return self._staged_end - self._end

    # -- staging

    def stage(self, data: Buffer, heads: Sequence[Head]) -> int:
        """Take whole, validated batches back to back; gives the first one's position."""
        size = len(data)
        assert sum([head.length for head in heads]) == size, "the heads are those of the data"
        with self._lock:
            position = self._make_room(size, self._staged_bytes_max)
            segment = self._segments[-1]
            entries, events = self._streams.note(position, heads)
            segment.events += events
            self._staged.append(Chunk(position, data, entries, segment))
            self._staged_end = segment.end = position + size
        return position

    def stage_record(self, record: Record) -> int:
        """Take a record and apply it to the ledger; gives its position.

        There is an eighth more room for records than for batches, so that what was delivered can still be
        settled while intake stands still.
        """
        data = encode(record)
        with self._lock:
            position = self._make_room(len(data), self._staged_bytes_max * 9 // 8)
            segment = self._segments[-1]
            self._apply(record)
            self._staged.append(Chunk(position, data, (), segment))
            self._staged_end = segment.end = position + len(data)
        return position

    def _apply(self, record: Record) -> None:
        apply(self._ledger, record)
        note_paused(self._paused, record)

    def _make_room(self, size: int, limit: int) -> int:
        """Check the limit, begin a new segment if this one is full, mark the time; gives the position."""
        if self._closed:
            raise Closed(f"the journal in {self._where}")
        position = self._staged_end
        waiting = position - self._end
        if waiting + size > limit and waiting:
            raise JournalFull(f"{waiting} bytes wait to be written, the limit is {limit}", self._where)
        # A clock that is set back does not make what comes later older.
        now_us = self._kept_us = max(self._kept_us, self._now_us())
        segment = self._segments[-1]
        if self._is_full(segment, position, now_us):
            segment = self._begin_segment(position)
        segment.last_us = now_us
        segment.first_us = segment.first_us or now_us
        if not self._marks or now_us - self._marks[-1][0] >= self._mark_us:
            self._marks.append((now_us, position))  # everything before was kept before
        return position

    def _is_full(self, segment: Segment, position: int, now_us: int) -> bool:
        """What is kept goes by whole segments, so they are small against what is to be kept."""
        size = position - segment.start
        return size >= self._segment_bytes or (
            size >= _SEGMENT_BYTES_MIN
            and (segment.events >= self._segment_events or now_us - segment.first_us >= self._age_us // 4)
        )

    def _begin_segment_if_old(self, now_us: int) -> None:
        """Where nothing new comes, the segment that is written grows old too."""
        with self._lock:
            segment = self._segments[-1]
            is_settled = self._staged_end == self._end
            if is_settled and segment.end > segment.start and now_us - segment.last_us > self._age_us:
                self._begin_segment(self._staged_end)

    def _begin_segment(self, position: int) -> Segment:
        segment = Segment(position, position)
        self._segments.append(segment)
        self._streams.segment_start = position
        return segment

    # -- committing

    def commit(self, sync: bool = True) -> int:
        """Write everything staged, then make it visible; gives the new end. With `sync` it is on disk then.

        When it fails, what was not written stays staged, in its order, and the next commit tries again.
        """
        with self._commit_lock:
            if self._closed and self._staged:
                raise Closed(f"the journal in {self._where}")
            self._commit(sync)
            return self._end

    def _commit(self, sync: bool) -> None:
        with self._lock:
            staged, self._staged = self._staged, []
        groups = [(segment, joined(chunks)) for segment, chunks in groupby(staged, _segment)]
        for index, (segment, chunks) in enumerate(groups):
            try:
                self._write(segment, chunks, sync)
            except BaseException:
                with self._lock:
                    self._staged[:0] = [chunk for _, rest in groups[index:] for chunk in rest]
                raise
            with self._lock:
                self._tail.add(chunks)
                self._end = chunks[-1].end
                if sync:
                    self._synced_end = self._end
            self._share_end()
        if sync and self._synced_end < self._end:
            self._sync()
            self._synced_end = self._end
            self._share_end()

    @abstractmethod
    def _write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        """Write chunks that follow the last written one: all of them, or nothing."""

    @abstractmethod
    def _sync(self) -> None:
        """Sync what was written without."""

    @abstractmethod
    def _share_end(self) -> None:
        """Tell other processes how far they may read."""

    # -- keeping house

    @abstractmethod
    def checkpoint(self) -> int:
        """Commit, and save index and ledger as of then; gives the position that a replay would start from."""

    @abstractmethod
    def trim(self, now_us: int | None = None, floor: int | None = None) -> list[Removed]:
        """Apply retention, never past position `floor`; gives what was removed."""

    @abstractmethod
    def close(self) -> None:
        """Keep what is staged, and close."""

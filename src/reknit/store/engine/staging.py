"""The staging area: batches and records get their positions here and wait for a commit. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from reknit.batch_layout import Head
from reknit.errors import JournalFull
from reknit.frame import Buffer
from reknit.records import Record, encode
from reknit.store.engine.journal_clock import JournalClock
from reknit.store.engine.log_state import LogState
from reknit.store.log.retention import Retention, Segment
from reknit.store.log.tail import Chunk

_SEGMENT_BYTES_MIN: Final = 4096
STAGED_BYTES_MAX: Final = 64 << 20
MARK_US: Final = 1_000_000
"""The resolution of the time index: at most one mark in this many microseconds."""


class SegmentLimits:
    """When a segment is full. Retention removes whole segments, so they are small compared to the retained log."""

    def __init__(self, segment_bytes: int, retention: Retention) -> None:
        self._bytes = segment_bytes
        self._events = (retention.count_max or 0) // 4 or 1 << 62
        self._age_us = int((retention.age_s_max or 0) * 1e6) or 1 << 62

    def is_full(self, segment: Segment, position: int, now_us: int) -> bool:
        size = position - segment.start
        return size >= self._bytes or (
            size >= _SEGMENT_BYTES_MIN
            and (segment.events >= self._events or now_us - segment.first_us >= self._age_us // 4)
        )

    def is_old(self, segment: Segment, now_us: int) -> bool:
        """Whether everything in a segment is past the maximum age."""
        return segment.end > segment.start and now_us - segment.last_us > self._age_us


class StagingArea:
    """Assigns positions, indexes batches, and applies records to the ledger."""

    def __init__(
        self,
        state: LogState,
        limits: SegmentLimits,
        *,
        staged_bytes_max: int,
        now_us: Callable[[], int],
        clock: JournalClock,
        mark_us: int,
    ) -> None:
        self._state = state
        self._limits = limits
        self._staged_bytes_max = staged_bytes_max
        self._now_us = now_us
        """The time of day, for marks."""
        self._clock = clock
        """The journal's own time, for the age of segments."""
        self._mark_us = max(1, mark_us)
        self._last_us = 0
        self._chunks: list[Chunk] = []

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    def resume(self, last_us: int) -> None:
        """Continue a journal whose last mark has this time."""
        self._last_us = last_us

    def stage(self, data: Buffer, heads: Sequence[Head]) -> int:
        """Take whole, validated batches back to back; returns the first one's position."""
        size = len(data)
        assert sum([head.length for head in heads]) == size, "the heads are those of the data"
        state = self._state
        with state.lock:
            position = self._make_room(size, self._staged_bytes_max)
            segment = state.segments[-1]
            entries, events = state.series.add(position, heads)
            self._chunks.append(Chunk(position, data, entries, segment))
            state.staged(segment, position + size, events)
        return position

    def stage_record(self, record: Record) -> int:
        """Take a record and apply it to the ledger; returns its position.

        Records have an eighth more room than batches, so that outcomes can still be stored while intake is stopped.
        """
        data = encode(record)
        state = self._state
        with state.lock:
            position = self._make_room(len(data), self._staged_bytes_max * 9 // 8)
            segment = state.segments[-1]
            state.apply(record)
            self._chunks.append(Chunk(position, data, (), segment))
            state.staged(segment, position + len(data))
        return position

    def check_room(self, size: int, limit: int | None = None) -> None:
        """Raise `JournalFull` unless so many bytes can be staged now."""
        limit = self._staged_bytes_max if limit is None else limit
        waiting = self._state.staged_end - self._state.end
        if waiting + size > limit and waiting:
            raise JournalFull(f"{waiting} bytes wait to be written, the limit is {limit}", self._state.where)

    def _make_room(self, size: int, limit: int) -> int:
        """Check the limit, begin a new segment if this one is full, mark the time; returns the position."""
        state = self._state
        state.check_open()
        position = state.staged_end
        self.check_room(size, limit)
        own_us = self._clock.now_us()
        segment = state.segments[-1]
        if self._limits.is_full(segment, position, own_us):
            segment = state.begin_segment(position)
        segment.stored_at(own_us)
        # If the time of day is set back, later entries still do not get an earlier mark.
        now_us = self._last_us = max(self._last_us, self._now_us())
        if not state.marks or now_us - state.marks[-1][0] >= self._mark_us:
            state.mark(now_us, position)
        return position

    def begin_segment_if_old(self, now_us: int) -> None:
        """Without new events, the current segment grows old too; begin another, so that it can be removed."""
        state = self._state
        with state.lock:
            if state.staged_end == state.end and self._limits.is_old(state.segments[-1], now_us):
                state.begin_segment(state.staged_end)

    def take(self) -> list[Chunk]:
        """Everything staged, for a commit to write."""
        with self._state.lock:
            chunks, self._chunks = self._chunks, []
        return chunks

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """A commit failed: these chunks wait for the next one, before chunks that were staged since."""
        with self._state.lock:
            self._chunks[:0] = chunks

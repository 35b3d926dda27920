"""The state that all parts of a journal share: ledger, series, the newest part of the log, and its ends.

    end           readers may read up to here; everything before it is written
    synced_end    everything before it is on disk
    staged_end    everything before it has a position; the rest up to here waits for a commit

Three threads use it: the event loop stages and reads, one thread commits, one checkpoints. `lock` guards what they
share; it is held for microseconds, never during I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from threading import Lock

from reknit.errors import Closed, Gone
from reknit.ledger import Ledger
from reknit.records import Record, apply, apply_to_paused
from reknit.store.engine.unreadable import UnreadableParts
from reknit.store.index.series import SeriesTable
from reknit.store.log.retention import Retention, Segment, removable
from reknit.store.log.tail import Chunk, Tail

_start = attrgetter("start")


class LogState:
    """A journal's in-memory state of its log. `where` names the journal in errors."""

    def __init__(self, where: str, tail_bytes_max: int | None) -> None:
        self.where = where
        self.lock = Lock()
        self.ledger = Ledger()
        self.paused: set[str] = set()
        self.series = SeriesTable(self.ledger)
        self.tail = Tail(tail_bytes_max)
        self.segments: list[Segment] = [Segment(0, 0)]
        self.marks: list[tuple[int, int]] = []
        """(time, position): everything before the position was stored before the time."""
        self.unreadable = UnreadableParts()
        self.end = self.synced_end = self.staged_end = 0
        self.is_closed = False

    @property
    def start(self) -> int:
        """The first position held."""
        return self.segments[0].start

    def check_open(self) -> None:
        """Raise `Closed` after `close`."""
        if self.is_closed:
            raise Closed(f"the journal in {self.where}")

    def gone(self) -> Gone:
        """The error for a position that retention has removed."""
        return Gone(self.start, f"the journal in {self.where}")

    # -- changes; the caller holds the lock where threads share the state

    def load(self, ledger: Ledger, paused: set[str], series: SeriesTable, segments: list[Segment]) -> None:
        """Take over the result of opening."""
        self.ledger, self.paused, self.series, self.segments = ledger, paused, series, segments

    def begin_at(self, end: int, marks: list[tuple[int, int]]) -> None:
        """The log ends here, all of it written and synced."""
        self.end = self.synced_end = self.staged_end = end
        self.marks = marks

    def follow(self, segments: list[Segment], end: int) -> None:
        """Another process writes the log, and it reaches up to `end` now."""
        self.segments, self.end = segments, end

    def close(self) -> None:
        """Nothing can be staged any more."""
        self.is_closed = True

    def begin_segment(self, position: int) -> Segment:
        segment = Segment(position, position)
        self.segments.append(segment)
        self.series.begin_segment(position)
        return segment

    def staged(self, segment: Segment, end: int, events: int = 0) -> None:
        """The newest segment holds more, up to `end`."""
        self.staged_end = segment.end = end
        segment.events += events

    def mark(self, now_us: int, position: int) -> None:
        """Everything before the position was stored before this time."""
        self.marks.append((now_us, position))

    def apply(self, record: Record) -> None:
        """Apply a record to the ledger and to the paused topics."""
        apply(self.ledger, record)
        apply_to_paused(self.paused, record)

    def written(self, chunks: Sequence[Chunk], is_synced: bool) -> None:
        """These chunks were written: readers may read them."""
        self.tail.add(chunks)
        self.end = chunks[-1].end
        if is_synced:
            self.synced_end = self.end

    def synced(self) -> None:
        """Everything that was written is on disk."""
        self.synced_end = self.end

    def dropped(self, count: int) -> list[Chunk]:
        """The oldest segments were removed; returns the chunks that were in memory."""
        del self.segments[:count]
        self.unreadable.drop_before(self.start)
        return self.tail.drop_before(self.start)

    def drop_marks(self) -> None:
        """Forget the time marks before the start, but never the newest."""
        self.marks = [mark for mark in self.marks if mark[1] >= self.start] or self.marks[-1:]

    # -- questions

    def expired_to(self, retention: Retention, now_us: int) -> int:
        """The position before which retention would remove everything, if nobody needed it."""
        with self.lock:
            count = removable(self.segments, retention, now_us, self.end)
            return self.segments[count].start

    def segment_at(self, position: int, stop: int) -> tuple[Segment, int] | None:
        """The segment that holds a position, or the next one after a hole, and the position in it."""
        with self.lock:
            segments = self.segments
            at = bisect_right(segments, position, key=_start) - 1
            if at < 0:
                raise self.gone()
            if position < segments[at].end:
                return segments[at], position
            later = (one for one in segments[at + 1 :] if one.start < one.end)
            following = next(later, None)
            if following is not None and following.start < stop:
                return following, following.start
        return None

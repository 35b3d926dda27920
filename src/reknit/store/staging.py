"""What every journal does the same way: stage, commit, read, find.

    stage          loop thread     gives positions, indexes, books into the ledger; no I/O
    commit         commit thread   writes what is staged, then makes it visible
    read, find     loop thread     from the tail in memory, else through `_load`

One lock guards what the threads share and is held for microseconds, never over I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from threading import Lock
from time import time_ns
from typing import Final

from reknit.batch import Head
from reknit.errors import Closed, Gone, JournalFull, LocalError
from reknit.frame import Buffer
from reknit.ledger import Ledger
from reknit.store.journal import READ_BYTES_MAX, Entry, OpenReport, Removed, Run, Status
from reknit.store.records import Record, apply, decode, encode, note_paused
from reknit.store.retention import Retention, Segment
from reknit.store.streams import Extent, Stream, Streams
from reknit.store.tail import Chunk, Tail, joined

NOTHING: Final = memoryview(b"")
MARK_US: Final = 1_000_000
"""How finely time is indexed: at most one mark in so many microseconds."""

_segment = attrgetter("segment")
_first = attrgetter("head.first")


def wall_clock_us() -> int:
    """Microseconds since 1970."""
    return time_ns() // 1000


class Staging(ABC):
    """The common part of journals. A subclass says where bytes go and where older ones come from."""

    def __init__(
        self,
        where: str,
        *,
        retention: Retention,
        staged_bytes_max: int,
        segment_bytes: int,
        tail_bytes_max: int | None,
        now_us: Callable[[], int] = wall_clock_us,
        mark_us: int = MARK_US,
    ) -> None:
        self._where = where
        self._retention = retention
        self._staged_bytes_max = staged_bytes_max
        self._segment_bytes = segment_bytes
        self._now_us = now_us
        self._mark_us = mark_us
        self._lock = Lock()
        self._commit_lock = Lock()
        self._closed = False
        self.ledger = Ledger()
        """Changed by `stage` and `stage_record` only. Until the commit it is ahead of what is kept."""
        self.paused: set[str] = set()
        """The patterns of paused topics."""
        self.report = OpenReport()
        self._streams = Streams(self.ledger)
        self._tail = Tail(tail_bytes_max)
        self._staged: list[Chunk] = []
        self._segments: list[Segment] = [Segment(0, 0)]
        self._marks: list[tuple[int, int]] = []
        self._staged_end = self._end = self._synced_end = 0

    # -- where things are

    @property
    def start(self) -> int:
        """The first position held."""
        return self._segments[0].start

    @property
    def end(self) -> int:
        """The position after the last that is kept: nothing past it is ever read."""
        return self._end

    @property
    def staged_end(self) -> int:
        """The position after the last that was staged."""
        return self._staged_end

    @property
    def staged_bytes(self) -> int:
        """How much waits for a commit."""
        return self._staged_end - self._end

    # -- writing

    def stage(self, data: Buffer, heads: Sequence[Head]) -> int:
        """Take whole, validated batches back to back; gives the first one's position."""
        assert sum([head.length for head in heads]) == len(data), "the heads are those of the data"
        with self._lock:
            position = self._make_room(len(data), self._staged_bytes_max)
            segment = self._segments[-1]
            entries, events = self._streams.note(position, heads)
            segment.events += events
            self._staged.append(Chunk(position, data, entries, segment))
            self._staged_end = segment.end = position + len(data)
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
        apply(self.ledger, record)
        note_paused(self.paused, record)

    def _make_room(self, size: int, limit: int) -> int:
        """Check the limit, begin a new segment if this one is full, mark the time; gives the position."""
        if self._closed:
            raise Closed(f"the journal in {self._where}")
        position = self._staged_end
        waiting = position - self._end
        if waiting + size > limit and waiting:
            raise JournalFull(
                f"{waiting} bytes are staged and not yet written, the limit is {limit}", self._where
            )
        now_us = self._now_us()
        segment = self._segments[-1]
        if position - segment.start >= self._segment_bytes:
            segment = self._begin_segment(position)
        self._mark(now_us, position, segment)
        return position

    def _begin_segment(self, position: int) -> Segment:
        segment = Segment(position, position)
        self._segments.append(segment)
        self._streams.segment_start = position
        return segment

    def _mark(self, now_us: int, position: int, segment: Segment) -> None:
        """Everything before `position` was kept before `now_us`."""
        segment.last_us = now_us
        segment.first_us = segment.first_us or now_us
        if not self._marks or now_us - self._marks[-1][0] >= self._mark_us:
            self._marks.append((now_us, position))

    def commit(self, sync: bool = True) -> int:
        """Write everything staged, then make it visible; gives the new end. With `sync` it is on disk then.

        When it fails, what was not written stays staged, in its order, and the next commit tries again.
        """
        with self._commit_lock:
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

    @abstractmethod
    def _write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        """Write chunks that follow the last written one, or nothing of them."""

    def _sync(self) -> None:
        """Sync what was written without."""
        return

    def _share_end(self) -> None:
        """Tell other processes how far they may read."""
        return

    # -- reading

    def read(self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX) -> Run:
        """Batches from `position` on, up to `stop` or the end. Records are passed over."""
        if stop is None or stop > self._end:
            stop = self._end
        while position < stop:
            chunk = self._chunk_at(position, stop, max_bytes)
            if chunk is None:
                position = stop  # in a hole that reaches so far
            elif chunk.entries:
                return self._run(chunk, max(position, chunk.position), stop, max_bytes)
            else:
                position = chunk.end
        return Run(position, NOTHING, (), position)

    def _run(self, chunk: Chunk, position: int, stop: int, max_bytes: int) -> Run:
        try:
            run = chunk.run(position, stop, max_bytes)
        except KeyError:
            raise LocalError(
                f"position {position} is inside a record of the journal in {self._where}; "
                "use positions as they were given"
            ) from None
        return run or Run(position, NOTHING, (), position)

    def _chunk_at(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        with self._lock:
            chunk = self._tail.at(position)
        if chunk is not None:
            return chunk
        start = self.start
        if position < start:
            raise Gone(start, f"the journal in {self._where}")
        return self._load(position, stop, max_bytes)

    @abstractmethod
    def _load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        """The first chunk at or after a position that is not in the tail, or None up to `stop`."""

    def records(
        self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX
    ) -> tuple[list[tuple[int, Record]], int]:
        """Records from `position` on within about `max_bytes` of the log, and where to go on."""
        stop = self._end if stop is None else min(stop, self._end)
        found: list[tuple[int, Record]] = []
        limit = position + max_bytes
        while position < min(stop, limit):
            chunk = self._chunk_at(position, stop, max_bytes)
            if chunk is None:
                return found, stop
            if not chunk.entries and chunk.position >= position:
                found.append((chunk.position, decode(chunk.data)))
            position = chunk.end
        return found, position

    def find(
        self, topic: str, source: bytes, start: int, stop: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The batches that hold any of `[start, stop)`, in seq order."""
        stream = self._streams.get(topic, source)
        if stream is None or start >= stop:
            return []
        entries: list[Entry] = []
        found_bytes = 0
        for extent in self._extents(stream, start, stop):
            for entry in self._entries(extent.position, extent.end):
                head = entry.head
                if head.first < stop and head.stop > start and head.source == source and head.topic == topic:
                    entries.append(entry)
                    found_bytes += head.length
            if max_bytes is not None and found_bytes >= max_bytes:
                break
        entries.sort(key=_first)
        return entries if max_bytes is None else _fitting(entries, max_bytes)

    def _extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        """In seq order. Memory is asked before the index: what leaves it has reached the index by then."""
        with self._lock:
            fresh = stream.overlapping(start, stop)
        saved = self._saved_extents(stream, start, stop)
        if not saved:
            return fresh
        both = {extent.position: extent for extent in (*saved, *fresh)}
        return sorted(both.values(), key=lambda extent: (extent.first, extent.position))

    def _saved_extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        """Those that hold any of `[start, stop)` and are no longer in memory."""
        return []

    def _entries(self, position: int, stop: int) -> list[Entry]:
        entries: list[Entry] = []
        stop = min(stop, self._end)
        while position < stop:
            try:
                run = self.read(position, stop)
            except Gone:
                break  # removed since the index was asked
            entries += run.entries
            position = run.next_position
        return entries

    def fetch(self, entry: Entry) -> memoryview:
        """A batch's bytes."""
        run = self.read(entry.position, entry.position + entry.head.length, entry.head.length)
        assert run.entries, "an entry of this journal"
        return run.data

    # -- asking

    def first_held(self, topic: str, source: bytes) -> int:
        """The seq from which on nothing was removed; 1 while everything is there."""
        stream = self._streams.get(topic, source)
        return 1 if stream is None else stream.first_held

    def topics(self) -> list[str]:
        """Every topic that ever had an event here."""
        return self._streams.topics()

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic."""
        return {
            source: stream.last for source, stream in self._streams.of_topic(topic).items() if stream.last
        }

    def position_at(self, time_us: int) -> int:
        """Where to read from to get everything kept at or after a time; at most one mark too early."""
        if time_us > self._now_us():
            return self._end
        with self._lock:
            index = bisect_right(self._marks, (time_us, self._staged_end)) - 1
            position = self._marks[index][1] if index >= 0 else None
        if position is None:
            position = self._saved_mark(time_us)
        return min(max(position, self.start), self._end)

    def _saved_mark(self, time_us: int) -> int:
        """The position of the last mark at or before a time that is no longer in memory, or 0."""
        return 0

    def status(self) -> Status:
        """What is held."""
        with self._lock:
            segments = self._segments
            events = sum(segment.events for segment in segments)
            held_bytes = sum(segment.end - segment.start for segment in segments)
            places = (self.start, self._end, self._staged_end, self._indexed_to())
            return Status(*places, events, held_bytes, len(segments), len(self._streams), self._tail.bytes)

    def _indexed_to(self) -> int:
        return self._end

    # -- keeping house

    def checkpoint(self) -> int:
        """Commit; here there is no index to save."""
        return self.commit()

    @abstractmethod
    def trim(self, now_us: int | None = None, floor: int | None = None) -> list[Removed]:
        """Apply retention, never past position `floor`."""

    @abstractmethod
    def close(self) -> None:
        """Keep what is staged, and close."""


def _fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """As many as fit, and at least one."""
    total = 0
    for index, entry in enumerate(entries):
        total += entry.head.length
        if total > max_bytes and index:
            return entries[:index]
    return entries

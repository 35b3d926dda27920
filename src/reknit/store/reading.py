"""Reading a journal: by position from the tail in memory or from where the rest is, by seq through the index.

Runs on the loop's thread while another commits and a third checkpoints. One lock guards what they share; it
is held for microseconds, never over I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from threading import Lock
from time import time_ns
from typing import Final

from reknit.entries import Entry, Run
from reknit.errors import Gone, LocalError
from reknit.ledger import Ledger
from reknit.records import Record, decode
from reknit.seqset import SeqSet
from reknit.store.journal import READ_BYTES_MAX, Status
from reknit.store.retention import Segment
from reknit.store.series import Extent, Stream, Streams
from reknit.store.tail import Chunk, Tail

NOTHING: Final = memoryview(b"")

_first = attrgetter("head.first")
_seq_order = attrgetter("first", "position")


def wall_clock_us() -> int:
    """Microseconds since 1970."""
    return time_ns() // 1000


class Reading(ABC):
    """What can be asked of every journal. A subclass says where older bytes and the saved index are."""

    def __init__(self, where: str, tail_bytes_max: int | None, now_us: Callable[[], int]) -> None:
        self._where = where
        self._id = ""
        self._now_us = now_us
        self._lock = Lock()
        self._ledger = Ledger()
        self._paused: set[str] = set()
        self._streams = Streams(self._ledger)
        self._tail = Tail(tail_bytes_max)
        self._segments: list[Segment] = [Segment(0, 0)]
        self._marks: list[tuple[int, int]] = []
        self._end = 0

    @property
    def id(self) -> str:
        """Positions of journals with different ids have nothing to do with each other."""
        return self._id

    @property
    def ledger(self) -> Ledger:
        """Changed by what is staged, and only by that. Until the commit it is ahead of what is kept."""
        return self._ledger

    @property
    def paused(self) -> set[str]:
        """The patterns of topics that are paused."""
        return self._paused

    @property
    def start(self) -> int:
        """The first position held."""
        return self._segments[0].start

    @property
    def end(self) -> int:
        """The position after the last that is kept: nothing past it is ever read."""
        return self._end

    # -- by position

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

    def _segment_at(self, position: int, stop: int) -> tuple[Segment, int] | None:
        """The segment that holds a position, or the next one after a hole, and the position in it."""
        with self._lock:
            segments = self._segments
            at = bisect_right(segments, position, key=_start) - 1
            if at < 0:
                raise Gone(segments[0].start, f"the journal in {self._where}")
            if position < segments[at].end:
                return segments[at], position
            if at + 1 < len(segments) and segments[at + 1].start < stop:
                return segments[at + 1], segments[at + 1].start
        return None

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
        return found, min(position, stop)

    # -- by seq

    def find(
        self, topic: str, source: bytes, start: int, stop: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The batches that hold any of `[start, stop)`, in seq order."""
        stream = self._streams.get(topic, source)
        if stream is None or start >= stop:
            return []
        found: dict[int, Entry] = {}
        found_bytes = 0
        for extent in self._extents(stream, start, stop):
            for entry in self._entries(extent.position, extent.end):
                head = entry.head
                if head.first < stop and head.stop > start and head.source == source and head.topic == topic:
                    found[entry.position] = entry
                    found_bytes += head.length
            if max_bytes is not None and found_bytes >= max_bytes:
                break
        entries = sorted(found.values(), key=_first)
        return entries if max_bytes is None else _fitting(entries, max_bytes)

    def _extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        """In seq order. Memory is asked before the index: what leaves it has reached the index by then."""
        with self._lock:
            fresh = stream.overlapping(start, stop)
        saved = self._saved_extents(stream, start, stop)
        if not saved:
            return fresh
        both = {extent.position: extent for extent in (*saved, *fresh)}
        return sorted(both.values(), key=_seq_order)

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

    def held(self, topic: str, source: bytes) -> SeqSet:
        """Which of a stream's events are held, or staged."""
        stream = self._streams.get(topic, source)
        if stream is None:
            return SeqSet()
        extents = self._extents(stream, 0, stream.last + 1)
        return SeqSet.from_ranges((one.first, one.stop) for one in extents if one.position >= self.start)

    # -- asking

    def first_held(self, topic: str, source: bytes) -> int:
        """The seq from which on nothing was removed; 1 while everything is there."""
        stream = self._streams.get(topic, source)
        return 1 if stream is None else stream.first_held

    def topics(self) -> list[str]:
        """Every topic that ever had an event here."""
        with self._lock:
            return self._streams.topics()

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic."""
        with self._lock:
            streams = self._streams.of_topic(topic)
            return {source: stream.last for source, stream in streams.items() if stream.last}

    def position_at(self, time_us: int) -> int:
        """Where to read from to get everything kept at or after a time; at most one mark too early."""
        if time_us > self._now_us():
            return self._end
        with self._lock:
            index = bisect_right(self._marks, time_us, key=_time) - 1
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
            places = (self.start, self._end, segments[-1].end, self._indexed_to())
            return Status(*places, events, held_bytes, len(segments), len(self._streams), self._tail.bytes)

    def _indexed_to(self) -> int:
        return self._end


_start = attrgetter("start")


def _time(mark: tuple[int, int]) -> int:
    return mark[0]


def _fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """As many as fit, and at least one."""
    total = 0
    for index, entry in enumerate(entries):
        total += entry.head.length
        if total > max_bytes and index:
            return entries[:index]
    return entries

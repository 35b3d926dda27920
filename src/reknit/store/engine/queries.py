"""Queries of a journal: by position from the tail in memory or from the archive, by seq through the extents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Final

from msgspec.structs import replace

from reknit.entries import Entry, Removed, Run
from reknit.errors import Gone, LocalError
from reknit.records import Record, decode
from reknit.seqset import SeqSet
from reknit.store.engine.archive import LogArchive
from reknit.store.engine.log_state import LogState
from reknit.store.index.series import Extent, SeriesExtents
from reknit.store.journal import READ_BYTES_MAX, JournalStatus
from reknit.store.log.frames import Damaged
from reknit.store.log.tail import Chunk

NOTHING: Final = memoryview(b"")

_first = attrgetter("head.first")
_seq_order = attrgetter("first", "position")
_time = itemgetter(0)


class LogQueries:
    """Every question that a journal answers about its log."""

    def __init__(self, state: LogState, archive: LogArchive, now_us: Callable[[], int]) -> None:
        self._state = state
        self._archive = archive
        self._now_us = now_us
        self._unreadable = state.unreadable

    # -- by position

    def read(self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX) -> Run:
        """Batches from `position` on, up to `stop` or the end. Records are skipped."""
        end = self._state.end
        if stop is None or stop > end:
            stop = end
        lost: tuple[Removed, ...] = ()
        while position < stop:
            if self._unreadable and (part := self._unreadable.at(position)) is not None:
                lost += part.lost
                position = part.stop
                continue
            try:
                chunk = self._chunk_at(position, stop, max_bytes)
            except (
                Damaged
            ) as damage:  # it is in an unreadable part now, maybe behind the hole at the position
                position = max(position, damage.position)
                continue
            if chunk is None:
                position = stop  # in a hole that reaches up to here
            elif chunk.entries:
                run = self._run(chunk, max(position, chunk.position), stop, max_bytes)
                return replace(run, lost=lost) if lost else run
            else:
                position = chunk.end
        return Run(position, NOTHING, (), position, lost)

    def _run(self, chunk: Chunk, position: int, stop: int, max_bytes: int) -> Run:
        try:
            run = chunk.run(position, stop, max_bytes)
        except KeyError:
            raise LocalError(
                f"position {position} is inside a record of the journal in {self._state.where}; "
                "use only positions that the journal returned"
            ) from None
        return run or Run(position, NOTHING, (), position)

    def _chunk_at(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        state = self._state
        with state.lock:
            chunk = state.tail.at(position)
        if chunk is not None:
            return chunk
        if position < state.start:
            raise state.gone()
        return self._archive.load(position, stop, max_bytes)

    def records(
        self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX
    ) -> tuple[list[tuple[int, Record]], int]:
        """Records from `position` on within about `max_bytes` of the log, and the position to continue from."""
        end = self._state.end
        stop = end if stop is None else min(stop, end)
        found: list[tuple[int, Record]] = []
        limit = position + max_bytes
        while position < min(stop, limit):
            if self._unreadable and (part := self._unreadable.at(position)) is not None:
                position = part.stop
                continue
            try:
                chunk = self._chunk_at(position, stop, max_bytes)
            except (
                Damaged
            ) as damage:  # it is in an unreadable part now, maybe behind the hole at the position
                position = max(position, damage.position)
                continue
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
        series = self._state.series.get(topic, source)
        if series is None or start >= stop:
            return []
        found: dict[int, Entry] = {}
        found_bytes = 0
        for extent in self._extents(series, start, stop):
            for entry in self._entries(extent.position, extent.end):
                head = entry.head
                if head.first < stop and head.stop > start and head.source == source and head.topic == topic:
                    found[entry.position] = entry
                    found_bytes += head.length
            if max_bytes is not None and found_bytes >= max_bytes:
                break
        entries = sorted(found.values(), key=_first)
        return entries if max_bytes is None else _fitting(entries, max_bytes)

    def _extents(self, series: SeriesExtents, start: int, stop: int) -> list[Extent]:
        """In seq order. Memory is searched before the index: an extent leaves memory only once the index has it."""
        with self._state.lock:
            fresh = series.overlapping(start, stop)
        saved = self._archive.extents(series, start, stop)
        if not saved:
            return fresh
        both = {extent.position: extent for extent in (*saved, *fresh)}
        return sorted(both.values(), key=_seq_order)

    def _entries(self, position: int, stop: int) -> list[Entry]:
        """All batches of `[position, stop)`, where `position` is the start of one."""
        entries: list[Entry] = []
        stop = min(stop, self._state.end)
        if not self._unreadable:
            with self._state.lock:
                chunks = self._state.tail.covering(position, stop)
            for chunk in chunks:
                entries += chunk.within(position, stop)
                position = chunk.end
        while position < stop:
            try:
                run = self.read(position, stop)
            except Gone:
                break  # removed since the index was searched
            entries += run.entries
            position = run.next_position
        return entries

    def fetch(self, entry: Entry) -> memoryview:
        """A batch's bytes."""
        run = self.read(entry.position, entry.position + entry.head.length, entry.head.length)
        if not run.entries:  # its bytes were damaged since it was found
            raise Gone(run.next_position, f"the journal in {self._state.where}")
        return run.data

    def held(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are held or staged."""
        series = self._state.series.get(topic, source)
        if series is None:
            return SeqSet()
        extents, start = self._extents(series, 0, series.last + 1), self._state.start
        held = SeqSet.from_ranges((one.first, one.stop) for one in extents if one.position >= start)
        return held.difference(self._unreadable.lost(topic, source)) if self._unreadable else held

    def lost(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are in parts that were found to be unreadable."""
        return self._unreadable.lost(topic, source)

    # -- about series, times and totals

    def first_held(self, topic: str, source: bytes) -> int:
        """Nothing from this seq on was removed; 1 while everything is held."""
        series = self._state.series.get(topic, source)
        return 1 if series is None else series.first_held

    def topics(self) -> list[str]:
        """Every topic that ever had an event here."""
        with self._state.lock:
            return self._state.series.topics()

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic."""
        with self._state.lock:
            by_source = self._state.series.of_topic(topic)
            return {source: series.last for source, series in by_source.items() if series.last}

    def position_at(self, time_us: int) -> int:
        """Where to start reading to get everything stored at or after a time; at most one mark too early."""
        state = self._state
        if time_us > self._now_us():
            return state.end
        if time_us < 0:  # an age from before 1970
            return state.start
        with state.lock:
            index = bisect_right(state.marks, time_us, key=_time) - 1
            position = state.marks[index][1] if index >= 0 else None
        if position is None:
            position = self._archive.mark_before(time_us)
        return min(max(position, state.start), state.end)

    def status(self) -> JournalStatus:
        """Totals of the held events."""
        state = self._state
        with state.lock:
            segments = state.segments
            events = sum(segment.events for segment in segments)
            held_bytes = sum(segment.end - segment.start for segment in segments)
            places = (state.start, state.end, segments[-1].end, self._archive.indexed_to())
            return JournalStatus(
                *places, events, held_bytes, len(segments), len(state.series), state.tail.bytes
            )


def _fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """As many as fit, and at least one."""
    total = 0
    for index, entry in enumerate(entries):
        total += entry.head.length
        if total > max_bytes and index:
            return entries[:index]
    return entries

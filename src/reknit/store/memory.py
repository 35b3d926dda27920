"""A journal in memory: the same contract, bounded by retention, gone with the process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import uuid4

from reknit.entries import Removed
from reknit.ledger import Ledger
from reknit.records import apply, decode, note_paused
from reknit.seqset import SeqSet
from reknit.store.reading import wall_clock_us
from reknit.store.retention import Retention, Segment, removable
from reknit.store.series import Extent
from reknit.store.staging import MARK_US, Staging
from reknit.store.tail import Chunk

STAGED_BYTES_MAX: Final = 64 << 20
SEGMENT_BYTES: Final = 4 << 20


class MemoryJournal(Staging):
    """Keeps everything that retention allows in memory; a commit makes it visible.

    >>> from reknit.batch import Batch
    >>> journal = MemoryJournal()
    >>> batch = Batch.build(bytes(16), "plant/temp", 1, [b"21.5"], time_us=1)
    >>> journal.stage(batch.data, [batch.head]), journal.read(0).next_position
    (0, 0)
    >>> journal.commit() == journal.read(0).next_position == len(batch.data)
    True
    """

    def __init__(
        self,
        retention: Retention | None = None,
        *,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        segment_bytes: int = SEGMENT_BYTES,
        now_us: Callable[[], int] = wall_clock_us,
        mark_us: int = MARK_US,
        id: str | None = None,
    ) -> None:
        super().__init__(
            "memory",
            retention=retention or Retention(),
            staged_bytes_max=staged_bytes_max,
            segment_bytes=segment_bytes,
            tail_bytes_max=None,
            now_us=now_us,
            mark_us=mark_us,
        )
        self._id = id or uuid4().hex

    def _write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        with self._lock:
            self._streams.fresh.clear()  # there is no index to put them into

    def _sync(self) -> None:
        """There is nothing to sync to."""

    def _share_end(self) -> None:
        """There is nobody to share it with."""

    @property
    def unsaved_bytes(self) -> int:
        return 0

    def checkpoint(self) -> int:
        """Commit; there is no index to save."""
        return self.commit()

    def _load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        raise AssertionError(f"all of the journal is in memory, position {position} too")

    def trim(self, now_us: int | None = None, floor: int | None = None) -> list[Removed]:
        """Apply retention, never past position `floor`; gives what was removed."""
        now_us = self._now_us() if now_us is None else now_us
        self._begin_segment_if_old(now_us)
        with self._lock:
            floor = self._end if floor is None else min(floor, self._end)
            count = removable(self._segments, self._retention, now_us, floor)
            if not count:
                return []
            del self._segments[:count]
            self._dropped(self._tail.drop_before(self.start))
            self._marks = [mark for mark in self._marks if mark[1] >= self.start] or self._marks[-1:]
            return forget(self._streams.drop_before(self.start))

    def _dropped(self, chunks: Iterable[Chunk]) -> None:
        """These go now."""

    def close(self) -> None:
        """Nothing can be staged any more; what is there can still be read."""
        if not self._closed:
            self.commit()
            self._closed = True


def forget(extents: Iterable[Extent]) -> list[Removed]:
    """Extents were removed: move their streams' first held seqs. Gives what was removed, merged."""
    by_stream: dict[int, tuple[Extent, SeqSet]] = {}
    for extent in extents:
        _, seqs = by_stream.setdefault(extent.stream.number, (extent, SeqSet()))
        seqs.add(extent.first, extent.stop)
    removed: list[Removed] = []
    for extent, seqs in by_stream.values():
        stream = extent.stream
        stream.first_held = max(stream.first_held, seqs.last + 1)
        stream.last = max(stream.last, seqs.last)
        removed += [Removed(stream.topic, stream.source, *bounds) for bounds in seqs.ranges()]
    return removed


class SimJournal(MemoryJournal):
    """A memory journal that can crash: a simulator's disk."""

    def __init__(
        self,
        retention: Retention | None = None,
        *,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        segment_bytes: int = SEGMENT_BYTES,
        now_us: Callable[[], int] = wall_clock_us,
        mark_us: int = MARK_US,
        id: str | None = None,
    ) -> None:
        super().__init__(
            retention,
            staged_bytes_max=staged_bytes_max,
            segment_bytes=segment_bytes,
            now_us=now_us,
            mark_us=mark_us,
            id=id,
        )
        self._base = Ledger()
        """The ledger as of `start`: what the removed part of the log made of it."""
        self._base_paused: set[str] = set()

    def _dropped(self, chunks: Iterable[Chunk]) -> None:
        _book(self._base, self._base_paused, chunks)

    def crash(self, survives: int | None = None) -> SimJournal:
        """Lose what was not synced and give the journal as it opens again; this one is of no use any more.

        What was written without sync survives up to position `survives`, as a kill -9 (not a power cut) would
        leave it; a batch that it cuts in two does not.
        """
        assert not self._closed, "a closed journal does not crash"
        kept_to = max(self._synced_end, min(survives or 0, self._end))
        new = SimJournal(
            self._retention,
            staged_bytes_max=self._staged_bytes_max,
            segment_bytes=self._segment_bytes,
            now_us=self._now_us,
            mark_us=self._mark_us,
            id=self._id,
        )
        new._recover(self, kept_to)
        self._closed = True
        return new

    def _recover(self, old: SimJournal, kept_to: int) -> None:
        self._base, self._base_paused = old._base, old._base_paused
        self._ledger = copy.deepcopy(old._base)
        self._paused = set(old._base_paused)
        self._streams = old._streams.emptied(self._ledger)
        self._marks = [mark for mark in old._marks if mark[1] < kept_to]
        self._segments = [Segment(old.start, old.start, first_us=old._segments[0].first_us)]
        self._staged_end = self._end = self._synced_end = old.start
        self._streams.segment_start = old.start
        for chunk in old._tail.between(old.start, kept_to):
            self._keep_again(chunk, kept_to)

    def _keep_again(self, chunk: Chunk, kept_to: int) -> None:
        if self._end != chunk.position:
            return  # something before it did not survive
        entries = [entry for entry in chunk.entries if entry.end <= kept_to]
        if chunk.entries and not entries:
            return
        end = entries[-1].end if entries else chunk.end
        if end > kept_to:
            return
        if chunk.segment.start == chunk.position and chunk.position > self.start:
            self._begin_segment(chunk.position)
        segment = self._segments[-1]
        self._streams.note(chunk.position, [entry.head for entry in entries])
        if not entries:
            self._apply(decode(chunk.data))
        data = chunk.data if end == chunk.end else memoryview(chunk.data)[: end - chunk.position]
        self._tail.add([Chunk(chunk.position, data, entries, segment)])
        segment.events += sum(entry.head.count for entry in entries)
        segment.first_us, segment.last_us = chunk.segment.first_us, chunk.segment.last_us
        self._staged_end = self._end = self._synced_end = segment.end = end
        self._streams.fresh.clear()


def _book(ledger: Ledger, paused: set[str], chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        for entry in chunk.entries:
            ledger.publish(entry.head.topic, entry.head.source, entry.head.first, entry.head.stop)
        if not chunk.entries:
            record = decode(chunk.data)
            apply(ledger, record)
            note_paused(paused, record)

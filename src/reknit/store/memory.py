"""A journal in memory: the same contract, bounded by retention, gone with the process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Final

from reknit import environment
from reknit.entries import Removed
from reknit.ledger import Ledger
from reknit.records import apply, apply_to_paused, decode
from reknit.store.engine.archive import NoArchive
from reknit.store.engine.composed import ComposedJournal
from reknit.store.engine.journal_clock import make_clock
from reknit.store.engine.log_state import LogState
from reknit.store.engine.staging import MARK_US, STAGED_BYTES_MAX, SegmentLimits, StagingArea
from reknit.store.index.series import remove
from reknit.store.journal import OpenReport
from reknit.store.log.retention import Retention, Segment, removable
from reknit.store.log.tail import Chunk

SEGMENT_BYTES: Final = 4 << 20


class MemoryWriter:
    """A commit in memory: there is nothing to write, to sync or to share."""

    problem = ""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        with self._state.lock:
            self._state.series.drop_fresh()

    def sync(self) -> None:
        """Nothing is on disk."""

    def share_end(self, end: int, synced_end: int) -> None:
        """No other process reads it."""


class MemoryJournal(ComposedJournal):
    """Holds everything that retention allows in memory; a commit makes it visible.

    `on_removed` is given the chunks that retention removes.

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
        now_us: Callable[[], int] = environment.time_us,
        elapsed: Callable[[], float] | None = None,
        mark_us: int = MARK_US,
        id: str | None = None,
        on_removed: Callable[[Sequence[Chunk]], object] = bool,
    ) -> None:
        self._retention = retention or Retention()
        self._clock = make_clock(now_us, elapsed)
        self._on_removed = on_removed
        state = LogState("memory", None)
        limits = SegmentLimits(segment_bytes, self._retention)
        super().__init__(
            id or environment.token_hex(16),
            state,
            StagingArea(
                state,
                limits,
                staged_bytes_max=staged_bytes_max,
                now_us=now_us,
                clock=self._clock,
                mark_us=mark_us,
            ),
            writer=MemoryWriter(state),
            archive=NoArchive(state),
            now_us=now_us,
            report=OpenReport(),
        )

    @property
    def unsaved_bytes(self) -> int:
        return 0

    @property
    def is_save_wanted(self) -> bool:
        """Never: there is no index to save."""
        return False

    def checkpoint(self) -> int:
        """Commit; there is no index to save."""
        return self.commit()

    def expired_to(self) -> int:
        """The position before which retention would remove everything, if nobody needed it."""
        return self.state.expired_to(self._retention, self._clock.now_us())

    def trim(self, now_us: int | None = None, floor: int | None = None, waits: bool = True) -> list[Removed]:
        """Apply retention, never past position `floor`; returns the removed events."""
        now_us = self._clock.now_us() if now_us is None else now_us
        self.staging.begin_segment_if_old(now_us)
        state = self.state
        with state.lock:
            floor = state.end if floor is None else min(floor, state.end)
            count = removable(state.segments, self._retention, now_us, floor)
            if not count:
                return []
            self._on_removed(state.dropped(count))
            state.drop_marks()
            return remove(state.series.drop_before(state.start))

    def close(self) -> None:
        """Nothing can be staged any more; everything held can still be read."""
        if not self.state.is_closed:
            self.commit()
            self.state.close()


class SimJournal(MemoryJournal):
    """A memory journal that can crash: a simulator's disk."""

    def __init__(
        self,
        retention: Retention | None = None,
        *,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        segment_bytes: int = SEGMENT_BYTES,
        now_us: Callable[[], int] = environment.time_us,
        elapsed: Callable[[], float] | None = None,
        mark_us: int = MARK_US,
        id: str | None = None,
        base: LedgerBase | None = None,
    ) -> None:
        self.base = base or LedgerBase()
        self._reopen: Callable[..., SimJournal] = lambda **known: SimJournal(
            retention,
            staged_bytes_max=staged_bytes_max,
            segment_bytes=segment_bytes,
            now_us=now_us,
            elapsed=elapsed,
            mark_us=mark_us,
            **known,
        )
        super().__init__(
            retention,
            staged_bytes_max=staged_bytes_max,
            segment_bytes=segment_bytes,
            now_us=now_us,
            elapsed=elapsed,
            mark_us=mark_us,
            id=id,
            on_removed=self.base.add,
        )

    def crash(self, survives: int | None = None) -> SimJournal:
        """Lose everything that was not synced, and return the reopened journal; this one is closed.

        Data that was written without a sync survives up to position `survives`, as after a kill -9 (not a power cut). A
        batch that this position divides does not survive.
        """
        assert not self.state.is_closed, "a closed journal does not crash"
        new = self.survivor(survives)
        self.state.close()
        return new

    def survivor(self, survives: int | None = None) -> SimJournal:
        """The journal that a crash would leave now. Read it only: it shares parts with this one."""
        old = self.state
        stop = max(old.synced_end, min(survives or 0, old.end))
        new = self._reopen(id=self.id, base=self.base)
        ledger, paused = self.base.copy()
        first = Segment(old.start, old.start, first_us=old.segments[0].first_us)
        new.state.load(ledger, paused, old.series.emptied(ledger), [first])
        new.state.series.begin_segment(old.start)
        new.state.begin_at(old.start, [mark for mark in old.marks if mark[1] < stop])
        for chunk in old.tail.between(old.start, stop):
            _replay(new.state, chunk, stop)
        return new


class LedgerBase:
    """The ledger as of a journal's start: the sum of everything that retention removed."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._paused: set[str] = set()

    def add(self, chunks: Sequence[Chunk]) -> None:
        """These chunks were removed."""
        for chunk in chunks:
            for entry in chunk.entries:
                head = entry.head
                self._ledger.publish(head.topic, head.source, head.first, head.stop)
            if not chunk.entries:
                record = decode(chunk.data)
                apply(self._ledger, record)
                apply_to_paused(self._paused, record)

    def copy(self) -> tuple[Ledger, set[str]]:
        """Ledger and paused patterns, to replay the rest of the log on."""
        return copy.deepcopy(self._ledger), set(self._paused)


def _replay(state: LogState, chunk: Chunk, stop: int) -> None:
    """Put a chunk that survived a crash into the state, up to position `stop`."""
    if state.end != chunk.position:
        return  # something before it did not survive
    entries = [entry for entry in chunk.entries if entry.end <= stop]
    if chunk.entries and not entries:
        return
    end = entries[-1].end if entries else chunk.end
    if end > stop:
        return
    if chunk.segment.start == chunk.position and chunk.position > state.start:
        state.begin_segment(chunk.position)
    segment = state.segments[-1]
    _, events = state.series.add(chunk.position, [entry.head for entry in entries])
    if not entries:
        state.apply(decode(chunk.data))
    data = chunk.data if end == chunk.end else memoryview(chunk.data)[: end - chunk.position]
    segment.stored_between(chunk.segment.first_us, chunk.segment.last_us)
    state.written([Chunk(chunk.position, data, entries, segment)], is_synced=True)
    state.staged(segment, end, events)
    state.series.drop_fresh()

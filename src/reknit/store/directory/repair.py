"""Repairing a damaged journal.

A journal that is damaged before its end does not open, because durable events are lost and a person should know.
`repair` moves the damaged bytes to `aside/`, rebuilds the index from the rest, and reports the lost events.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from reknit.entries import Removed
from reknit.ledger import Ledger
from reknit.records import apply, apply_to_paused, decode
from reknit.seqset import SeqSet
from reknit.store.directory.existence import continuing_head, proven_events
from reknit.store.directory.index_check import open_index
from reknit.store.directory.layout import DirectoryLock, Layout, shared_end
from reknit.store.directory.survey import Damage, LogSurvey, ValidPart
from reknit.store.index.index import Index
from reknit.store.index.rows import Snapshot, segment_row
from reknit.store.index.series import Extent, SeriesTable, remove
from reknit.store.index.snapshot import AccountNumbers, UnsavedChanges, fill
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles, segment_path, segment_starts, sync_directory
from reknit.store.log.tail import Chunk
from reknit.store.log.walk import content_bytes, set_aside


class RepairReport(msgspec.Struct, frozen=True):
    """The damage that a repair found, and the events that are lost."""

    damages: tuple[Damage, ...]
    lost: tuple[Removed, ...]
    """The lost events, as far as the index knew them, or the rest of the log proves them."""
    index_aside: str = ""
    """Where an unreadable index was put. The ledger of events that retention removed is lost with it."""

    def __str__(self) -> str:
        lines = [f"set aside: {damage}" for damage in self.damages]
        lines += [f"lost: {one.topic} {one.source.hex()} [{one.start}, {one.stop})" for one in self.lost]
        lines += [f"rebuilt the index; the old one is in {self.index_aside}"] if self.index_aside else []
        return "\n".join(lines) or "nothing is damaged"


def repair(directory: Path | str) -> RepairReport:
    """Move damaged bytes aside and report the lost events. Raises `JournalLocked` while the journal is in use.

    >>> from tempfile import TemporaryDirectory
    >>> from reknit.store.disk import DiskJournal
    >>> with TemporaryDirectory() as directory:
    ...     DiskJournal(directory).close()
    ...     print(repair(directory))
    nothing is damaged
    """
    layout = Layout(Path(directory))
    layout.read_label()
    lock = DirectoryLock(layout.lock)
    try:
        layout.create()
        index, index_damage = open_index(layout)
        try:
            work = _Repair(layout, index)
            work.walk()
            damages = work.set_aside()
            lost = work.lost()
            work.split()
            work.save(lost)
        finally:
            index.close()
    finally:
        lock.release()
    return RepairReport(tuple(damages), tuple(lost), index_damage.aside if index_damage else "")


class _Repair:
    """The steps of a repair, in order."""

    def __init__(self, layout: Layout, index: Index) -> None:
        self._layout, self._index = layout, index
        self._files = SegmentFiles(layout.log)
        self._ledger = Ledger()
        old = SeriesTable(self._ledger)
        state, self._known, numbers = index.load(old, self._ledger)
        self._numbers = AccountNumbers(numbers)
        start, self._indexed_to = (state.start, state.indexed_to) if state else (0, 0)
        self._paused = set(state.paused) if state else set()
        self._offset_us, self._lost_before = (state.offset_us, state.lost) if state else (0, [])
        self._exposed = max(self._indexed_to, shared_end(layout.end))
        """Other processes may have seen positions up to here, so no other entry gets them."""
        self._claims = index.held(old, 0, 1 << 62)
        self._indexed_last = {series: seqs.last for series, seqs in self._ledger.published.items()}
        self._series = old.emptied(self._ledger)
        starts = [one for one in segment_starts(layout.log) if one >= start]
        self._survey = LogSurvey(self._files, starts, self._exposed, [one.position for one in self._claims])

    def walk(self) -> None:
        """Read everything; index the valid batches, and apply the records that the saved ledger does not have."""
        for chunk in self._survey:
            self._series.begin_segment(chunk.segment.start)
            _, events = self._series.add(chunk.position, [one.head for one in chunk.entries])
            chunk.segment.store(chunk.end, events)
            if not chunk.entries and chunk.position >= self._indexed_to:
                self._apply(chunk)

    def _apply(self, chunk: Chunk) -> None:
        record = decode(chunk.data)
        apply(self._ledger, record)
        apply_to_paused(self._paused, record)

    def set_aside(self) -> list[Damage]:
        """Copy the damaged bytes into files of their own."""
        made = []
        for one in self._survey.damages:
            data = self._files.pread(one.position - one.offset, one.offset, one.stop - one.position)
            if one.offset + len(data) == self._files.size(one.position - one.offset):
                data = data[: content_bytes(data)]  # the rest is preallocated
            path = set_aside(self._layout.aside, one.position, data)
            made.append(msgspec.structs.replace(one, aside=str(path)))
        return made

    def lost(self) -> list[Removed]:
        """The events that the index knew, or that the rest of the log proves, and that the walk did not find."""
        missing: dict[int, tuple[Extent, SeqSet]] = {}
        for claim in self._claims:
            missing.setdefault(claim.series.number, (claim, SeqSet()))[1].add(claim.first, claim.stop)
        for extent in self._series.fresh:
            if extent.series.number in missing:
                missing[extent.series.number][1].discard(extent.first, extent.stop)
        gone = []
        for claim, seqs in missing.values():
            series = self._series.make(claim.series.topic, claim.series.source)
            gone += [Extent(series, *bounds, claim.position, claim.end) for bounds in seqs.ranges()]
        return remove([*gone, *self._proven()])

    def _proven(self) -> Iterator[Extent]:
        """Events that were damaged before the index knew them: they count as published, and are lost."""
        unindexed = [one for one in self._survey.damages if one.stop > self._indexed_to]
        if not unindexed:
            return
        where = (unindexed[0].position, unindexed[-1].stop)
        for key, seqs in proven_events(self._ledger, self._indexed_last).items():
            for start, stop in seqs.ranges():
                self._ledger.publish(*key, start, stop)
                yield Extent(self._series.make(*key), start, stop, *where)
        for one in unindexed:
            data = self._files.pread(one.position - one.offset, one.offset, one.stop - one.position)
            if (head := continuing_head(self._ledger, data)) is not None:
                self._ledger.publish(head.topic, head.source, head.first, head.stop)
                series = self._series.make(head.topic, head.source)
                yield Extent(series, head.first, head.stop, *where)

    def split(self) -> None:
        """Give every valid part after damage a file of its own, then cut the files that they were in."""
        first_of: dict[int, ValidPart] = {}
        for part in self._survey.parts:
            if first_of.setdefault(part.file_start, part) is not part:
                self._copy_out(part)
        sync_directory(self._layout.log)
        for damage in self._survey.damages:
            first = first_of[damage.position - damage.offset]
            os.truncate(damage.path, first.segment.end - first.file_start)
        self._files.close()

    def _copy_out(self, part: ValidPart) -> None:
        path = segment_path(self._layout.log, part.segment.start)
        draft = path.with_suffix(".new")
        offset, stop = part.segment.start - part.file_start, part.segment.end - part.file_start
        with draft.open("wb") as file:
            while offset < stop:
                data = self._files.pread(part.file_start, offset, min(4 << 20, stop - offset))
                file.write(data)
                offset += len(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def save(self, lost: Sequence[Removed]) -> None:
        """Write a new index, which remembers what is lost: the node reports it when it starts."""
        segments = [part.segment for part in self._survey.parts]
        self._date(segments)
        if not segments or segments[-1].end < self._exposed:
            segments.append(Segment(self._exposed, self._exposed))
            segment_path(self._layout.log, self._exposed).touch()
            sync_directory(self._layout.log)
        for segment in segments:
            if segment.start == segment.end:
                segment_path(self._layout.log, segment.start).touch()
        snapshot = Snapshot(
            to=segments[-1].end,
            start=segments[0].start,
            extents=self._series.fresh,
            segments=[segment_row(one) for one in segments],
            marks=[],
            paused=sorted(self._paused),
            offset_us=self._offset_us,
            lost=[*self._lost_before, *lost],
        )
        unsaved = UnsavedChanges()
        unsaved.take(self._ledger)
        unsaved.add_accounts(self._lower_floors())
        unsaved.add_series({(one.topic, one.source) for one in self._series})
        fill(snapshot, unsaved, self._ledger, self._series, self._numbers)
        self._index.rebuild(snapshot)

    def _lower_floors(self) -> set[str]:
        """Records of outcomes may be among the damage: their events are delivered again, wherever they are."""
        lowered = set()
        for name, account in self._ledger.accounts.items():
            for one in self._series.fresh:  # in the order of the log
                if one.position >= account.floor:
                    break
                if account.open_within((one.series.topic, one.series.source), one.first, one.stop):
                    account.floor = one.position
                    lowered.add(name)
                    break
        return lowered

    def _date(self, segments: Iterable[Segment]) -> None:
        """Date each segment like the segment that it comes from, or like its file."""
        known = {one.start: one for one in self._known}
        for segment, part in zip(segments, self._survey.parts, strict=True):
            old = known.get(part.file_start)
            written_us = int(segment_path(self._layout.log, part.file_start).stat().st_mtime * 1e6)
            times = (old.first_us, old.last_us) if old else (written_us, written_us)
            segment.stored_between(*times)

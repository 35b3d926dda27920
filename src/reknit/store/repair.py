"""Setting aside what is damaged in a journal.

A journal that is damaged before its end does not open: something that was kept is gone, and someone should
know. `repair` takes the damaged bytes out, keeps them in `aside/`, builds the index again from the rest, and
says which events are gone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from reknit.entries import Removed
from reknit.errors import JournalError
from reknit.ledger import Ledger
from reknit.records import apply, decode, note_paused
from reknit.seqset import SeqSet
from reknit.store.directory import DirectoryLock, Layout, shared_end
from reknit.store.index import Index
from reknit.store.log import SegmentFiles, segment_path, segment_starts, sync_directory
from reknit.store.log_walk import set_aside
from reknit.store.memory import forget
from reknit.store.retention import Segment
from reknit.store.rows import Snapshot, segment_row
from reknit.store.series import Extent, Streams
from reknit.store.snapshot import AccountNumbers, Dirty, fill
from reknit.store.survey import Damage, Piece, Survey
from reknit.store.tail import Chunk


class RepairReport(msgspec.Struct, frozen=True):
    """What was found and done."""

    damages: tuple[Damage, ...]
    lost: tuple[Removed, ...]
    """The events that are gone, as far as the index knew them."""
    index_aside: str = ""
    """Where an index that could not be read was put.

    A ledger of events that retention removed is lost with it.
    """

    def __str__(self) -> str:
        lines = [f"set aside: {damage}" for damage in self.damages]
        lines += [f"lost: {one.topic} {one.source.hex()} [{one.start}, {one.stop})" for one in self.lost]
        lines += [f"built the index again; the old one is in {self.index_aside}"] if self.index_aside else []
        return "\n".join(lines) or "nothing is damaged"


def repair(directory: Path | str) -> RepairReport:
    """Set aside what is damaged and say which events are gone. Raises `JournalLocked` while it is in use.

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
        index, index_aside = _open_index(layout)
        try:
            work = _Repair(layout, index)
            work.walk()
            damages = work.set_aside()
            lost = work.lost()
            work.split()
            work.save()
        finally:
            index.close()
    finally:
        lock.release()
    return RepairReport(tuple(damages), tuple(lost), index_aside)


def _open_index(layout: Layout) -> tuple[Index, str]:
    """The index; one that can't be read is put aside, and an empty one takes its place."""
    with suppress(JournalError, KeyError, ValueError, struct.error, msgspec.DecodeError):
        index = Index(layout.index)
        try:
            index.load(Streams(Ledger()), Ledger())
        except BaseException:
            index.close()
            raise
        return index, ""
    aside = layout.aside / f"index.{len(list(layout.aside.glob('index.*'))) + 1}"
    layout.index.rename(aside)
    layout.create()
    return Index(layout.index), str(aside)


class _Repair:
    def __init__(self, layout: Layout, index: Index) -> None:
        self._layout, self._index = layout, index
        self._files = SegmentFiles(layout.log)
        self._ledger = Ledger()
        old = Streams(self._ledger)
        state, self._known, numbers = index.load(old, self._ledger)
        self._numbers = AccountNumbers(numbers)
        start, self._indexed_to = (state.start, state.indexed_to) if state else (0, 0)
        self._paused = set(state.paused) if state else set()
        self._exposed = max(self._indexed_to, shared_end(layout.end))
        """Positions up to here may have been seen by others, and are not given to anything else."""
        self._claims = index.held(old, 0, 1 << 62)
        self._streams = old.emptied(self._ledger)
        starts = [one for one in segment_starts(layout.log) if one >= start]
        self._survey = Survey(self._files, starts, self._exposed, [one.position for one in self._claims])

    def walk(self) -> None:
        """Read everything; index what is valid, and book the records that the saved ledger does not have."""
        for chunk in self._survey:
            self._streams.segment_start = chunk.segment.start
            chunk.segment.events += self._streams.note(chunk.position, [one.head for one in chunk.entries])[1]
            if not chunk.entries and chunk.position >= self._indexed_to:
                self._apply(chunk)

    def _apply(self, chunk: Chunk) -> None:
        record = decode(chunk.data)
        apply(self._ledger, record)
        note_paused(self._paused, record)

    def set_aside(self) -> list[Damage]:
        """Copy the damaged bytes into files of their own."""
        made = []
        for one in self._survey.damages:
            data = self._files.pread(one.position - one.offset, one.offset, one.stop - one.position)
            if one.offset + len(data) == self._files.size(one.position - one.offset):
                data = data.rstrip(b"\0")  # room that was allocated
            path = set_aside(self._layout.aside, one.position, data)
            made.append(msgspec.structs.replace(one, aside=str(path)))
        return made

    def lost(self) -> list[Removed]:
        """What the index knew and the walk did not find."""
        missing: dict[int, tuple[Extent, SeqSet]] = {}
        for claim in self._claims:
            missing.setdefault(claim.stream.number, (claim, SeqSet()))[1].add(claim.first, claim.stop)
        for extent in self._streams.fresh:
            if extent.stream.number in missing:
                missing[extent.stream.number][1].discard(extent.first, extent.stop)
        gone = []
        for claim, seqs in missing.values():
            stream = self._streams.make(claim.stream.topic, claim.stream.source)
            gone += [Extent(stream, *bounds, claim.position, claim.end) for bounds in seqs.ranges()]
        return forget(gone)

    def split(self) -> None:
        """Give every valid piece behind damage a file of its own, then cut the files that they were in."""
        first_of: dict[int, Piece] = {}
        for piece in self._survey.pieces:
            if first_of.setdefault(piece.file_start, piece) is not piece:
                self._copy_out(piece)
        sync_directory(self._layout.log)
        for damage in self._survey.damages:
            first = first_of[damage.position - damage.offset]
            os.truncate(damage.path, first.segment.end - first.file_start)
        self._files.close()

    def _copy_out(self, piece: Piece) -> None:
        path = segment_path(self._layout.log, piece.segment.start)
        draft = path.with_suffix(".new")
        offset, stop = piece.segment.start - piece.file_start, piece.segment.end - piece.file_start
        with draft.open("wb") as file:
            while offset < stop:
                data = self._files.pread(piece.file_start, offset, min(4 << 20, stop - offset))
                file.write(data)
                offset += len(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def save(self) -> None:
        """Write the index anew."""
        segments = [piece.segment for piece in self._survey.pieces]
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
            extents=self._streams.fresh,
            segments=[segment_row(one) for one in segments],
            marks=[],
            paused=sorted(self._paused),
        )
        dirty = Dirty()
        dirty.take(self._ledger)
        dirty.streams |= {(one.topic, one.source) for one in self._streams}
        fill(snapshot, dirty, self._ledger, self._streams, self._numbers)
        self._index.rebuild(snapshot)

    def _date(self, segments: Iterable[Segment]) -> None:
        """When what is in a segment was kept: as the segment's was that it comes from, or as its file's."""
        known = {one.start: one for one in self._known}
        for segment, piece in zip(segments, self._survey.pieces, strict=True):
            old = known.get(piece.file_start)
            path = segment_path(self._layout.log, piece.file_start)
            written_us = int(path.stat().st_mtime * 1e6)
            segment.first_us = old.first_us if old else written_us
            segment.last_us = old.last_us if old else written_us

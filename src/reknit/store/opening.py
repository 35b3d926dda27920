"""Opening: the index's state, then everything in the log that it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from reknit.entries import Removed
from reknit.errors import JournalCorrupt, JournalError, MalformedFrame
from reknit.frame import FRAME_BYTES_MAX
from reknit.ledger import Ledger
from reknit.records import apply, decode, note_paused
from reknit.seqset import SeqSet
from reknit.store.directory import Layout
from reknit.store.index import Index
from reknit.store.journal import OpenReport
from reknit.store.log import SegmentFiles, segment_path, segment_starts
from reknit.store.log_walk import Cut, cut, replay, scan
from reknit.store.memory import forget
from reknit.store.retention import Segment
from reknit.store.rows import State
from reknit.store.series import EXTENT_BYTES, Extent, Streams
from reknit.store.tail import Chunk

VERIFIED_BYTES: Final = 4 << 20
"""So much of the end is verified on opening even if it was closed cleanly."""


@dataclass(slots=True)
class Opened:
    """A journal's state as opening found it."""

    ledger: Ledger
    streams: Streams
    segments: list[Segment]
    account_numbers: dict[str, int]
    paused: set[str]
    indexed_to: int
    end: int
    removals: list[tuple[int, int]] = field(default_factory=list)
    """Parts of the log that are gone and still in the index."""
    report: OpenReport = field(default_factory=OpenReport)
    batches: int = 0
    records: int = 0

    def keep(self, chunk: Chunk) -> None:
        """Index and book a chunk, unless the index has it."""
        self.end = chunk.end
        if chunk.end <= self.indexed_to:
            return
        self.streams.segment_start = chunk.segment.start
        if chunk.entries:
            self._keep_batches(chunk)
        else:
            self._keep_record(chunk)
        chunk.segment.end = max(chunk.segment.end, chunk.end)

    def _keep_record(self, chunk: Chunk) -> None:
        try:
            record = decode(chunk.data)
        except MalformedFrame as error:
            what = f"{error.what} ({error.where}); perhaps a newer reknit wrote it"
            raise JournalError(what, f"position {chunk.position}") from None
        apply(self.ledger, record)
        note_paused(self.paused, record)
        self.records += 1

    def _keep_batches(self, chunk: Chunk) -> None:
        entries = [entry for entry in chunk.entries if entry.position >= self.indexed_to]
        _, events = self.streams.note(entries[0].position, [entry.head for entry in entries])
        chunk.segment.events += events
        self.batches += len(entries)


def load_index(index: Index, directory: Path) -> Opened:
    """What the index knows, with the segments that have a file."""
    ledger = Ledger()
    streams = Streams(ledger)
    state, known, numbers = index.load(streams, ledger)
    starts = segment_starts(directory)
    if state is None:
        segments = [Segment(start, start) for start in starts] or [Segment(0, 0)]
        return Opened(ledger, streams, segments, numbers, set(), segments[0].start, segments[0].start)
    segments = _matched(known, starts, state, directory)
    opened = Opened(ledger, streams, segments, numbers, set(state.paused), state.indexed_to, state.indexed_to)
    first = segments[0].start if segments else state.indexed_to
    if first > state.start:
        opened.removals.append((state.start, first))
    return opened


def _matched(known: Sequence[Segment], starts: Sequence[int], state: State, directory: Path) -> list[Segment]:
    """The segments of the log: those that the index knows and whose file is there, and newer files.

    The first files may be missing: a removal was interrupted. So may the last: the log's end is lost then.
    """
    there = {start for start in starts if start >= state.start}
    held = [one for one in known if one.start in there or one.start == one.end == state.indexed_to]
    for one in known:
        if held and held[0].start < one.start < held[-1].start and one.start not in there:
            raise _misfit(directory, one.start, "the file is missing")
    newer = sorted(there - {one.start for one in held})
    if newer and newer[0] < state.indexed_to:
        raise _misfit(directory, newer[0], "the index does not know this file")
    return held + [Segment(start, start) for start in newer]


def _misfit(directory: Path, start: int, why: str) -> JournalCorrupt:
    error = JournalCorrupt(str(segment_path(directory, start)), 0, why)
    error.do = f"restore the file, or run `reknit journal repair {directory.parent}`"
    return error


def open_log(
    layout: Layout, index: Index, files: SegmentFiles, shared: tuple[int, int], now_us: int
) -> Opened:
    """Load the index, replay the log from there, cut a tail.

    `shared`: the end and the synced end that were shared.
    """
    opened = load_index(index, layout.log)
    exposed = max(opened.indexed_to, shared[0])
    are_all_gone = not opened.segments
    if are_all_gone:
        opened.segments.append(Segment(exposed, exposed))
    for start in segment_starts(layout.log):
        if start < opened.segments[0].start:
            segment_path(layout.log, start).unlink()  # left from a removal
    opened.end = _verified_from(index, files, opened)
    tail = replay(files, opened.segments, opened.end, max(opened.indexed_to, shared[1]), opened.keep)
    opened.end = max(opened.end, opened.segments[-1].start) if tail is None else tail.position
    opened.report = _report(opened, files, index.state() is None)
    if are_all_gone and opened.removals:
        lost = forget(index.held(opened.streams, 0, exposed))
        missing = exposed - opened.removals[0][0]
        opened.report = replace(opened.report, clean=False, missing_bytes=missing, lost=tuple(lost))
    if tail is not None:
        opened.segments = [one for one in opened.segments if one.start <= tail.segments[0].start]
        opened.report = _cut_reported(opened.report, tail, cut(files, tail, layout.aside))
    opened.segments[-1].end = opened.end
    if opened.end < opened.indexed_to:
        _lose(index, files, opened)
    if opened.end < exposed:
        # Others may have seen the positions up to there: they are not given to anything else.
        opened.report = replace(opened.report, clean=False, missing_bytes=exposed - opened.end)
        opened.segments.append(Segment(exposed, exposed))
        opened.end = exposed
    _close_removals(index, opened)
    for segment in opened.segments:
        segment.first_us, segment.last_us = segment.first_us or now_us, segment.last_us or now_us
    return opened


def _verified_from(index: Index, files: SegmentFiles, opened: Opened) -> int:
    """Where to start: a little before what the index does not have, at a known start of a frame."""
    indexed_to = opened.indexed_to
    base = [one for one in opened.segments if one.start < indexed_to] or opened.segments[:1]
    segment = base[-1]
    file_end = segment.start + files.size(segment.start)
    place = index.place_before(min(max(indexed_to - VERIFIED_BYTES, segment.start), file_end))
    return segment.start if place is None or place < segment.start else place


def _report(opened: Opened, files: SegmentFiles, is_new: bool) -> OpenReport:
    replayed = opened.end - opened.indexed_to
    last = opened.segments[-1]
    return OpenReport(
        clean=replayed == 0 and last.start + files.size(last.start) == opened.end,
        replayed_from=opened.indexed_to,
        replayed_bytes=max(0, replayed),
        replayed_batches=opened.batches,
        replayed_records=opened.records,
        index_rebuilt=is_new and replayed > 0,
    )


def _cut_reported(report: OpenReport, tail: Cut, kept: str) -> OpenReport:
    if not tail.is_damage:
        return replace(report, clean=False)
    size = len(tail.data)
    return replace(
        report, clean=False, cut_position=tail.position, cut_bytes=size, cut_why=tail.why, cut_file=kept
    )


def _lose(index: Index, files: SegmentFiles, opened: Opened) -> None:
    """The log ends before what the index knows: take that out of the index and say what was lost."""
    end, indexed_to, segment = opened.end, opened.indexed_to, opened.segments[-1]
    # An extent may begin before the end and claim what lies behind it. Everything from the first such on is
    # noted anew.
    reach = 2 * EXTENT_BYTES + FRAME_BYTES_MAX
    claimed = index.held(opened.streams, max(segment.start, end - reach), indexed_to)
    claimed = [extent for extent in claimed if extent.end > end]
    anew = min([end, *(extent.position for extent in claimed)])
    claimed = index.held(opened.streams, anew, indexed_to)
    lost = _without_found(claimed, list(scan(files, segment, anew, end)))
    forget(lost)
    removed = [Removed(one.stream.topic, one.stream.source, one.first, one.stop) for one in lost]
    index.remove(anew, indexed_to, opened.segments[0].start, opened.streams, moved_to=anew)
    opened.streams.segment_start = segment.start
    for chunk in scan(files, segment, anew, end):
        opened.streams.note(chunk.position, [entry.head for entry in chunk.entries])
    segment.events = max(0, segment.events - sum(one.stop - one.start for one in removed))
    opened.indexed_to = anew
    report = opened.report
    if report.cut_position is None:
        report = replace(report, cut_position=end, cut_why="the end of the log is missing")
    opened.report = replace(report, clean=False, lost=tuple(removed))


def _without_found(claimed: Sequence[Extent], chunks: Sequence[Chunk]) -> list[Extent]:
    """What of the claimed is not in the chunks, as extents."""
    missing: dict[int, tuple[Extent, SeqSet]] = {}
    for extent in claimed:
        missing.setdefault(extent.stream.number, (extent, SeqSet()))[1].add(extent.first, extent.stop)
    by_stream = {(extent.stream.topic, extent.stream.source): seqs for extent, seqs in missing.values()}
    for head in (entry.head for chunk in chunks for entry in chunk.entries):
        if (head.topic, head.source) in by_stream:
            by_stream[head.topic, head.source].discard(head.first, head.stop)
    return [
        Extent(extent.stream, start, stop, extent.position, extent.end)
        for extent, seqs in missing.values()
        for start, stop in seqs.ranges()
    ]


def _close_removals(index: Index, opened: Opened) -> None:
    """A removal that was interrupted: its files are gone, and so are their events."""
    for low, high in opened.removals:
        forget(index.held(opened.streams, low, high))
    if opened.report.index_rebuilt and opened.segments[0].start:
        for stream in opened.streams:
            stream.first_held = max(stream.first_held, min(one.first for one in stream.extents))

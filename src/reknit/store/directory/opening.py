"""Opening a journal for writing: load the index, replay the rest of the log, and cut off a torn tail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from reknit.entries import Removed
from reknit.frame import FRAME_BYTES_MAX
from reknit.seqset import SeqSet
from reknit.store.directory.journal_files import JournalFiles
from reknit.store.directory.opened_log import OpenedLog, load_index
from reknit.store.index.series import EXTENT_BYTES, Extent, SeriesExtents, remove
from reknit.store.journal import OpenReport
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import segment_path, segment_starts
from reknit.store.log.tail import Chunk
from reknit.store.log.walk import TornTail, cut, replay, scan

VERIFIED_BYTES: Final = 4 << 20
"""How much of the end is verified on opening, even after a clean close."""


def open_log(files: JournalFiles) -> OpenedLog:
    """Load the index, replay the log from there, and cut off a torn tail."""
    opening = _Opening(files)
    opening.drop_leftovers()
    tail = opening.replay()
    opening.report_removed_log()
    if tail is not None:
        opening.cut(tail)
    opening.end_log()
    opening.close_removals()
    return opening.opened


class _Opening:
    """The steps of opening, in order."""

    def __init__(self, files: JournalFiles) -> None:
        self._layout, self._index, self._files = files.layout, files.index, files.segments
        self._index_damage = files.index_damage
        self.opened = load_index(self._index, self._layout.log)
        shared_end, self._synced_end = files.shared.read()
        self._exposed = max(self.opened.indexed_to, shared_end)
        """Other processes may have seen positions up to here, so no other entry gets them."""
        self._is_log_gone = not self.opened.segments
        if self._is_log_gone:
            self.opened.segments.append(Segment(self._exposed, self._exposed))

    def drop_leftovers(self) -> None:
        """Delete files that an interrupted removal left."""
        for start in segment_starts(self._layout.log):
            if start < self.opened.segments[0].start:
                segment_path(self._layout.log, start).unlink()

    def replay(self) -> TornTail | None:
        """Replay the log that the index does not have; returns the tail to cut off."""
        opened = self.opened
        opened.end = self._verified_from()
        synced_end = max(opened.indexed_to, self._synced_end)
        tail = replay(self._files, opened.segments, opened.end, synced_end, opened.replay)
        opened.end = max(opened.end, opened.segments[-1].start) if tail is None else tail.position
        opened.report = self._replayed()
        return tail

    def _verified_from(self) -> int:
        """Where to start: a little before the end of the index, at a known start of a frame."""
        indexed_to = self.opened.indexed_to
        segments = self.opened.segments
        segment = ([one for one in segments if one.start < indexed_to] or segments[:1])[-1]
        file_end = segment.start + self._files.size(segment.start)
        place = self._index.place_before(min(max(indexed_to - VERIFIED_BYTES, segment.start), file_end))
        return segment.start if place is None or place < segment.start else place

    def _replayed(self) -> OpenReport:
        opened = self.opened
        replayed = opened.end - opened.indexed_to
        last, damage = opened.segments[-1], self._index_damage
        is_whole = replayed == 0 and last.start + self._files.size(last.start) == opened.end
        return OpenReport(
            clean=is_whole and damage is None,
            replayed_from=opened.indexed_to,
            replayed_bytes=max(0, replayed),
            replayed_batches=opened.batches,
            replayed_records=opened.records,
            set_aside=tuple(opened.lost),
            index_rebuilt=self._index.state() is None and replayed > 0,
            index_damage="" if damage is None else damage.why,
            index_aside="" if damage is None else damage.aside,
        )

    def report_removed_log(self) -> None:
        """Every file of the log is gone: report its events as lost."""
        opened = self.opened
        if self._is_log_gone and opened.removals:
            lost = remove(self._index.held(opened.series, 0, self._exposed))
            missing = self._exposed - opened.removals[0][0]
            opened.report = replace(opened.report, clean=False, missing_bytes=missing, lost=tuple(lost))

    def cut(self, tail: TornTail) -> None:
        """Cut off a torn tail and put its bytes aside."""
        opened = self.opened
        opened.segments = [one for one in opened.segments if one.start <= tail.segments[0].start]
        aside = cut(self._files, tail, self._layout.aside)
        opened.report = replace(opened.report, clean=False)
        if tail.is_damage:
            opened.report = replace(
                opened.report,
                cut_position=tail.position,
                cut_bytes=len(tail.data),
                cut_why=tail.why,
                cut_file=aside,
            )

    def end_log(self) -> None:
        """Settle where the log ends. A part that is missing at the end leaves a hole."""
        opened = self.opened
        opened.segments[-1].cut(opened.end)
        if opened.end < opened.indexed_to:
            self._lose()
        if opened.end < self._exposed:
            missing = self._exposed - opened.end
            opened.report = replace(opened.report, clean=False, missing_bytes=missing)
            opened.segments.append(Segment(self._exposed, self._exposed))
            opened.end = self._exposed

    def _lose(self) -> None:
        """The log ends before the index does: take the rest out of the index, and report the lost events."""
        opened = self.opened
        end, indexed_to, segment = opened.end, opened.indexed_to, opened.segments[-1]
        # An extent may begin before the end and claim events behind it. Everything from the first such extent on is
        # indexed again.
        reach = 2 * EXTENT_BYTES + FRAME_BYTES_MAX
        claimed = self._index.held(opened.series, max(segment.start, end - reach), indexed_to)
        again = min([end, *(extent.position for extent in claimed if extent.end > end)])
        chunks = list(scan(self._files, segment, again, end))
        lost = _without_found(self._index.held(opened.series, again, indexed_to), chunks)
        remove(lost)
        removed = [Removed(one.series.topic, one.series.source, one.first, one.stop) for one in lost]
        self._index.remove(again, indexed_to, opened.segments[0].start, opened.series, moved_to=again)
        opened.series.begin_segment(segment.start)
        for chunk in chunks:
            opened.series.add(chunk.position, [entry.head for entry in chunk.entries])
        segment.lose(sum(one.stop - one.start for one in removed))
        opened.indexed_to = again
        report = opened.report
        if report.cut_position is None:
            report = replace(report, cut_position=end, cut_why="the end of the log is missing")
        opened.report = replace(report, clean=False, lost=tuple(removed))

    def close_removals(self) -> None:
        """Complete a removal that was interrupted: its files are gone, and so are their events."""
        opened = self.opened
        for low, high in opened.removals:
            remove(self._index.held(opened.series, low, high))
        if opened.report.index_rebuilt and opened.segments[0].start:
            for series in opened.series:
                series.removed_to(min(one.first for one in series.extents) - 1)


def _without_found(claimed: Sequence[Extent], chunks: Sequence[Chunk]) -> list[Extent]:
    """The claimed events that are not in the chunks, as extents."""
    missing: dict[int, tuple[Extent, SeqSet]] = {}
    for extent in claimed:
        missing.setdefault(extent.series.number, (extent, SeqSet()))[1].add(extent.first, extent.stop)
    by_series = {_key(extent.series): seqs for extent, seqs in missing.values()}
    for head in (entry.head for chunk in chunks for entry in chunk.entries):
        if (head.topic, head.source) in by_series:
            by_series[head.topic, head.source].discard(head.first, head.stop)
    return [
        Extent(extent.series, start, stop, extent.position, extent.end)
        for extent, seqs in missing.values()
        for start, stop in seqs.ranges()
    ]


def _key(series: SeriesExtents) -> tuple[str, bytes]:
    return series.topic, series.source

"""The state of a log while it is opened: first the content of the index, then everything that a replay adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reknit.entries import Removed
from reknit.errors import JournalCorrupt, JournalError, MalformedFrame
from reknit.ledger import Ledger
from reknit.records import apply, apply_to_paused, decode
from reknit.store.index.index import Index
from reknit.store.index.rows import IndexState
from reknit.store.index.series import SeriesTable
from reknit.store.journal import OpenReport
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import segment_path, segment_starts
from reknit.store.log.tail import Chunk


@dataclass(slots=True)
class OpenedLog:
    """A journal's state while it is opened."""

    ledger: Ledger
    series: SeriesTable
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
    offset_us: int = 0
    """The journal's own time minus the time of day, as the index has it."""
    lost: list[Removed] = field(default_factory=list)
    """The events that were lost with damage which repairs set aside."""

    def replay(self, chunk: Chunk) -> None:
        """Index a chunk and enter it into the ledger, unless the index has it."""
        self.end = chunk.end
        if chunk.end <= self.indexed_to:
            return
        self.series.begin_segment(chunk.segment.start)
        if chunk.entries:
            self._replay_batches(chunk)
        else:
            self._replay_record(chunk)

    def _replay_record(self, chunk: Chunk) -> None:
        try:
            record = decode(chunk.data)
        except MalformedFrame as error:
            what = f"{error.what}; a newer version of reknit may have written it"
            raise JournalError(what, f"position {chunk.position}") from None
        apply(self.ledger, record)
        apply_to_paused(self.paused, record)
        chunk.segment.store(chunk.end)
        self.records += 1

    def _replay_batches(self, chunk: Chunk) -> None:
        entries = [entry for entry in chunk.entries if entry.position >= self.indexed_to]
        _, events = self.series.add(entries[0].position, [entry.head for entry in entries])
        chunk.segment.store(chunk.end, events)
        self.batches += len(entries)


def load_index(index: Index, directory: Path) -> OpenedLog:
    """Load the index, with the segments that have a file."""
    ledger = Ledger()
    series = SeriesTable(ledger)
    state, known, numbers = index.load(series, ledger)
    starts = segment_starts(directory)
    if state is None:
        segments = [Segment(start, start) for start in starts] or [Segment(0, 0)]
        return OpenedLog(ledger, series, segments, numbers, set(), segments[0].start, segments[0].start)
    segments = _matched(known, starts, state, directory)
    opened = OpenedLog(
        ledger, series, segments, numbers, set(state.paused), state.indexed_to, state.indexed_to
    )
    opened.offset_us, opened.lost = state.offset_us, state.lost
    first = segments[0].start if segments else state.indexed_to
    if first > state.start:
        opened.removals.append((state.start, first))
    return opened


def _matched(
    known: Sequence[Segment], starts: Sequence[int], state: IndexState, directory: Path
) -> list[Segment]:
    """The segments of the log: those that the index knows and whose file exists, and newer files.

    The first files may be missing, after an interrupted removal. So may the last ones: then the log's end is lost.
    """
    there = {start for start in starts if start >= state.start}
    held = [one for one in known if one.start in there or one.start == one.end == state.indexed_to]
    newer = sorted(there - {one.start for one in held})
    last = max([*newer, *(one.start for one in held)], default=0)
    for one in known:
        if held and held[0].start < one.start < last and one.start not in there:
            raise _misfit(directory, one.start, "the file is missing")
    if newer and newer[0] < state.indexed_to:
        raise _misfit(directory, newer[0], "the index does not know this file")
    return held + [Segment(start, start) for start in newer]


def _misfit(directory: Path, start: int, why: str) -> JournalCorrupt:
    error = JournalCorrupt(str(segment_path(directory, start)), 0, why)
    error.do = f"restore the file, or run `reknit journal repair {directory.parent}`"
    return error

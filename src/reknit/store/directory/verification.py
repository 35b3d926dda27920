"""Verifying a journal: every frame of the log, and the index. Nothing is changed, and a node may have it open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from reknit.errors import JournalError
from reknit.store.directory.index_check import open_index_to_read
from reknit.store.directory.layout import Layout, is_locked, shared_end
from reknit.store.directory.survey import Damage, LogSurvey
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles, segment_path, segment_starts
from reknit.store.log.tail import Chunk

PROGRESS_BYTES: Final = 4 << 20
"""How often progress is reported."""

OnProgress = Callable[[int, int], object]
"""Called with the bytes that were checked so far, and the bytes to check."""


class Verification(msgspec.Struct, frozen=True):
    """What a verification checked, and the damage that it found."""

    bytes: int
    batches: int
    events: int
    records: int
    damages: tuple[Damage, ...] = ()
    index_damage: str = ""
    """Why the index can't be used. The node rebuilds it from the log when it starts."""
    is_in_use: bool = False
    """A node has the journal open. The log was checked up to its end at that moment."""

    @property
    def is_sound(self) -> bool:
        return not self.damages and not self.index_damage


def verify_journal(directory: Path | str, on_progress: OnProgress = lambda done, total: None) -> Verification:
    """Check everything. Raises `JournalError` if there is no journal.

    >>> from tempfile import TemporaryDirectory
    >>> from reknit.store.disk import DiskJournal
    >>> with TemporaryDirectory() as directory:
    ...     DiskJournal(directory).close()
    ...     verify_journal(directory).is_sound
    True
    """
    layout = Layout(Path(directory))
    layout.read_label()
    return _Verifier(layout, on_progress).run()


class _Verifier:
    """One walk through a journal."""

    def __init__(self, layout: Layout, on_progress: OnProgress) -> None:
        self._layout, self._on_progress = layout, on_progress
        self._is_in_use = is_locked(layout.lock)
        self._files = SegmentFiles(layout.log)
        self._anchors: Sequence[int] = ()
        self._known: Sequence[Segment] = ()
        self._counts = [0, 0, 0, 0]
        """Bytes, batches, events and records that were checked."""

    def run(self) -> Verification:
        index_damage = self._read_index()
        starts = segment_starts(self._layout.log)
        end = shared_end(self._layout.end)
        survey = LogSurvey(self._files, starts, end, self._anchors, self._is_in_use)
        total = sum(self._files.size(start) for start in starts)
        reported = 0
        for chunk in survey:
            self._count(chunk)
            if self._counts[0] - reported >= PROGRESS_BYTES:
                reported = self._counts[0]
                self._on_progress(reported, total)
        self._on_progress(total, total)
        damages = (*survey.damages, *self._missing(segment_starts(self._layout.log), survey.damages))
        self._files.close()
        checked, batches, events, records = self._counts
        return Verification(checked, batches, events, records, damages, index_damage, self._is_in_use)

    def _read_index(self) -> str:
        """Take the known places of frames from the index; returns why it can't be used."""
        try:
            index = open_index_to_read(self._layout)
        except JournalError as error:
            return error.what
        try:
            if not self._is_in_use:
                index.check()
            self._anchors = [place[0] for place in index.places(0, 1 << 62)]
            self._known = index.segments()
        except JournalError as error:
            return error.what
        finally:
            index.close()
        return ""

    def _count(self, chunk: Chunk) -> None:
        counts = self._counts
        counts[0] += chunk.end - chunk.position
        counts[1] += len(chunk.entries)
        counts[2] += sum(entry.head.count for entry in chunk.entries)
        counts[3] += not chunk.entries

    def _missing(self, starts: Sequence[int], found: Sequence[Damage]) -> list[Damage]:
        """Files that the index knows and that are missing, or shorter than they were."""
        damages = []
        for segment in self._known:
            if not starts or segment.start < starts[0]:
                continue  # retention removes it, or has removed it meanwhile
            path = str(segment_path(self._layout.log, segment.start))
            reached = segment.start + self._files.size(segment.start)
            if reached < segment.end and not any(one.stop > reached for one in found if one.path == path):
                why = "the file is cut off" if segment.start in starts else "the file is missing"
                damages.append(Damage(path, reached - segment.start, reached, segment.end, why))
        return damages

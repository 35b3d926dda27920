"""Reads a journal's log from its files, in processes on the node's machine.

Only durable positions are read: every end comes from the node. The files are mapped, not copied, so that a column
can be built on their bytes. A file that retention removes stays readable as long as it is mapped.
"""

from __future__ import annotations

import logging
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from reknit.batch_layout import COUNT, HEADER
from reknit.errors import Gone, JournalCorrupt, MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, KIND_BATCH, LEAD, LEAD_BYTES, MAGIC, PREFIX, PREFIX_BYTES, checksum
from reknit.records import encode
from reknit.spark.source.frame_scan import ScannedFrames, scan
from reknit.store.directory.layout import Layout
from reknit.store.log.segment_files import segment_path, segment_starts
from reknit.store.reader import open_reader

__all__ = ["LogFiles", "SplitPoints", "epoch_of"]

log = logging.getLogger("reknit.spark")

WINDOW_BYTES: Final = 8 << 20
NO_LIMIT: Final = 1 << 62


class SplitPoints(msgspec.Struct, frozen=True):
    """Where a section of a journal can be split, and how many events it holds."""

    marks: list[int]
    """The first batch at or after `origin + k * step`, for each k."""
    events: int
    next: int
    """The position to continue from."""
    full: bool
    """True if the limit of events was reached."""


def epoch_of(directory: Path | str) -> str:
    """The epoch of the journal in a directory; empty if it can't be read."""
    try:
        return Path(directory, "epoch").read_text().strip()
    except OSError:
        return ""


class LogFiles:
    """The log in a journal's directory, read up to durable positions."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Layout(Path(directory)).log

    def frames(
        self, position: int, stop: int, records: list[tuple[int, memoryview]] | None = None
    ) -> Iterator[ScannedFrames]:
        """The batches of `[position, stop)`, a few MiB at a time; damaged ones are left out. Raises `Gone`."""
        while position < stop:
            known = 0 if records is None else len(records)
            try:
                for start, window in self._windows(position, stop):
                    yield scan(window, start, records=records)[0]
                    position, known = start + len(window), 0 if records is None else len(records)
                return
            except (JournalCorrupt, MalformedFrame) as error:
                if records is not None:
                    del records[known:]
                views, position = self._around_damage(position, stop, error, records)
            for start, view in views:
                yield scan(view, start)[0]

    def split_points(
        self, position: int, stop: int, origin: int, step: int, events_max: int = NO_LIMIT
    ) -> Iterator[SplitPoints]:
        """As the node answers `index`, from the files, a few MiB at a time. Raises `Gone`."""
        due = origin + -(-(position - origin) // step) * step
        for start, window in self._sound_windows(position, stop):
            events, marks, at, size = 0, list[int](), 0, len(window)
            while at < size:
                _, kind, _, length = LEAD.unpack_from(window, at)
                if kind == KIND_BATCH:
                    place, count = start + at, HEADER.unpack_from(window, at)[COUNT]
                    if events + count > events_max and place > origin:
                        yield SplitPoints(marks, events, place, True)
                        return
                    events += count
                    if place >= due:
                        marks.append(place)
                        due = origin + ((place - origin) // step + 1) * step
                at += length
            events_max -= events
            yield SplitPoints(marks, events, start + size, events_max <= 0)

    def _sound_windows(self, position: int, stop: int) -> Iterator[tuple[int, memoryview]]:
        """Whole frames of `[position, stop)`, without damaged ones: after a damaged length is no frame."""
        while position < stop:
            try:
                for start, window in self._windows(position, stop):
                    end = _sound(window)
                    if end:
                        yield start, window[:end]
                    position = start + end
                    if end < len(window):
                        raise MalformedFrame("checksum does not match the content", f"at position {position}")
                return
            except (JournalCorrupt, MalformedFrame) as error:
                views, position = self._around_damage(position, stop, error, None)
            yield from views

    def _around_damage(
        self,
        position: int,
        stop: int,
        error: Exception,
        records: list[tuple[int, memoryview]] | None,
    ) -> tuple[list[tuple[int, memoryview]], int]:
        """The valid batches of the next few MiB, and where to continue. The index knows where frames begin."""
        log.warning("skipped damage in %s, after position %d: %s", self._directory, position, error)
        found: list[tuple[int, memoryview]] = []
        limit, at = min(stop, position + WINDOW_BYTES), position
        with open_reader(self._directory.parent) as reader:
            while at < limit:
                run = reader.read(at, stop)
                if run.next_position <= at:
                    raise error
                if run.entries:
                    found.append((run.position, run.data))
                at = run.next_position
            while records is not None and position < at:
                part, position = reader.records(position, at)
                records += [(place, memoryview(encode(record))) for place, record in part]
        return found, at

    def _windows(self, position: int, stop: int) -> Iterator[tuple[int, memoryview]]:
        """Whole frames of `[position, stop)`, back to back, and the position of the first."""
        while position < stop:
            segment, size = self._segment(position, stop)
            if segment >= stop:
                return
            position = max(position, segment)
            path = segment_path(self._directory, segment)
            with open(path, "rb") as file:
                while position < min(stop, segment + size):
                    window = _window(file.fileno(), position - segment, min(stop - segment, size))
                    if not window:
                        # Space that a crash left unused, if the log continues in the next file; else damage.
                        _check_unused(path, position - segment, segment_starts(self._directory)[-1] > segment)
                        position = segment + size
                        break
                    yield position, window
                    position += len(window)

    def _segment(self, position: int, stop: int) -> tuple[int, int]:
        """The start and size of the file that holds a position, or of the next one."""
        while True:
            starts = segment_starts(self._directory)
            if not starts or position < starts[0]:
                raise Gone(starts[0] if starts else stop, f"the journal in {self._directory.parent}")
            at = bisect_right(starts, position) - 1
            try:
                size = segment_path(self._directory, starts[at]).stat().st_size
            except FileNotFoundError:
                continue  # it was removed meanwhile: list the files again
            if position < starts[at] + size:
                return starts[at], size
            if at + 1 == len(starts):
                path = segment_path(self._directory, starts[at])
                raise JournalCorrupt(str(path), size, "the log ends before its durable end")
            position = starts[at + 1]


def _check_unused(path: Path, offset: int, is_followed: bool) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        if not is_followed or file.read().strip(b"\0"):
            raise JournalCorrupt(str(path), offset, "there is no frame")


def _window(fd: int, offset: int, stop: int) -> memoryview:
    """Whole frames at `offset` of a file, at least one; empty if only zeros follow."""
    size = min(WINDOW_BYTES, stop - offset)
    while True:
        view = _mapped(fd, offset, size)
        end = _whole(view)
        if end or len(view) < LEAD_BYTES:
            return view[:end]
        magic, _, _, wanted = LEAD.unpack_from(view, 0)
        if magic != MAGIC or wanted > FRAME_BYTES_MAX or offset + wanted > stop:
            return view[:0]
        size = wanted


def _mapped(fd: int, offset: int, size: int) -> memoryview:
    low = offset - offset % mmap.ALLOCATIONGRANULARITY
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    mapped = mmap.mmap(fd, offset + size - low, flags=flags, prot=mmap.PROT_READ, offset=low)
    return memoryview(mapped)[offset - low :]


def _whole(view: memoryview) -> int:
    """Where the last whole frame ends."""
    at, size, unpack = 0, len(view), LEAD.unpack_from
    while at + LEAD_BYTES <= size:
        magic, _, _, length = unpack(view, at)
        if magic != MAGIC or length < LEAD_BYTES or at + length > size:
            break
        at += length
    return at


def _sound(view: memoryview) -> int:
    """Where the first damaged frame begins, or the end."""
    at, size, unpack = 0, len(view), PREFIX.unpack_from
    while at < size:
        _, _, _, length, found = unpack(view, at)
        if length < PREFIX_BYTES or checksum(view[at : at + length]) != found:
            break
        at += length
    return at


def is_here(directory: str, epoch: str) -> bool:
    """True if a journal of this epoch can be read from a directory of this machine."""
    return bool(directory) and epoch_of(directory) == epoch and os.access(Path(directory, "log"), os.R_OK)

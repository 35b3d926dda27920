"""A walk through a whole log that may be damaged anywhere: its valid parts, and the damage between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from reknit.store.log.frames import Damaged, valid_frame_after
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles, segment_path
from reknit.store.log.tail import Chunk
from reknit.store.log.walk import scan


class Damage(msgspec.Struct, frozen=True):
    """Invalid bytes of the log: `[position, stop)`."""

    path: str
    offset: int
    position: int
    stop: int
    why: str
    aside: str = ""
    """The file where a repair put them."""

    def __str__(self) -> str:
        aside = f", kept in {self.aside}" if self.aside else ""
        return f"{self.path} byte {self.offset}: {self.stop - self.position} bytes, {self.why}{aside}"


class ValidPart(NamedTuple):
    """A part of the log without damage, `[segment.start, segment.end)`, in the file that starts at `file_start`."""

    file_start: int
    segment: Segment


class LogSurvey:
    """The whole log in order: iterating gives the valid chunks, and collects valid parts and damages.

    `end` is how far the log was known to reach. Zeros after it are preallocated room. While the journal is in use,
    everything after it may be half written, and is not read. `anchors` are known starts of frames, in order.
    """

    def __init__(
        self,
        files: SegmentFiles,
        starts: Sequence[int],
        end: int,
        anchors: Sequence[int],
        is_in_use: bool = False,
    ) -> None:
        self._files, self._starts, self._end, self._anchors = files, starts, end, anchors
        self._is_in_use = is_in_use
        self.parts: list[ValidPart] = []
        self.damages: list[Damage] = []

    def __iter__(self) -> Iterator[Chunk]:
        for index, start in enumerate(self._starts):
            file_end = start + self._files.size(start)
            following = self._starts[index + 1] if index + 1 < len(self._starts) else file_end
            stop = min(file_end, following, max(start, self._end) if self._is_in_use else file_end)
            yield from self._segment(start, stop)

    def _segment(self, start: int, stop: int) -> Iterator[Chunk]:
        at = start
        while True:
            part = ValidPart(start, Segment(at, at))
            self.parts.append(part)
            try:
                for chunk in scan(self._files, Segment(start, stop), at, stop):
                    yield Chunk(chunk.position, chunk.data, chunk.entries, part.segment)
                    at = chunk.end
                    part.segment.cut(at)
                return
            except Damaged as damage:
                at = damage.position
                after = self._resume(start, at, stop)
                if after is None and at >= self._end and self._is_zeros(start, at, stop):
                    return
                path = str(segment_path(self._files.directory, start))
                self.damages.append(Damage(path, at - start, at, after or stop, damage.why))
                if after is None:
                    return
                at = after

    def _is_zeros(self, start: int, position: int, stop: int) -> bool:
        data = self._files.pread(start, position - start, stop - position)
        return data.count(0) == len(data)

    def _resume(self, start: int, position: int, stop: int) -> int | None:
        """Where the log continues after damage."""
        data = self._files.pread(start, position - start, stop - position)
        at = valid_frame_after(data, 8)
        while at is not None:
            broken_at = self._chain_breaks(start, position + at, stop)
            if broken_at is None:
                return position + at
            at = valid_frame_after(data, max(at, broken_at - position) + 8)
        return None

    def _chain_breaks(self, start: int, position: int, stop: int) -> int | None:
        """Where frames from a position on break off; None if they lead to a known start, or to the end.

        A payload may hold bytes that look like frames, so a valid frame alone proves nothing.
        """
        index = bisect_left(self._anchors, position)
        anchor = self._anchors[index] if index < len(self._anchors) else stop
        if anchor == position:
            return None
        reached = position
        try:
            for chunk in scan(self._files, Segment(start, stop), position, min(anchor, stop)):
                reached = chunk.end
        except Damaged:
            is_end = reached > position and anchor >= stop and self._is_zeros(start, reached, stop)
            return None if is_end else reached
        return None

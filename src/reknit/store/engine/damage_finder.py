"""Finds out how far damage in a segment reaches, and which events are lost with it.

An unreadable part begins where the last valid frame ends, and ends where valid frames lead to the next place that the
index knows. Its events are those that the index has there, without those that are found in valid frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from reknit.entries import Removed, UnreadablePart
from reknit.errors import LocalError
from reknit.seqset import SeqSet
from reknit.store.engine.log_state import LogState
from reknit.store.index.index import Index
from reknit.store.index.series import EXTENT_BYTES, Extent
from reknit.store.log.frames import Damaged
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles, segment_path
from reknit.store.log.tail import Chunk
from reknit.store.log.walk import continuation, scan, valid_chunks

REACH_BYTES: Final = 2 * EXTENT_BYTES
"""The last batch of an extent begins at most this far after its first."""


class DamageFinder:
    """Examines positions at which a read found no valid frame."""

    def __init__(
        self, state: LogState, files: SegmentFiles, index: Index, prepare: Callable[[], object] = bool
    ) -> None:
        self._state, self._files, self._index = state, files, index
        self._prepare = prepare
        """Loads the series of the index, where they are not loaded yet."""

    def examine(self, segment: Segment, position: int) -> None:
        """Add the unreadable part that holds `position`. Raises `LocalError` if that is inside a valid frame.

        The walk begins at a known start of a frame, so that no position from elsewhere makes valid frames unreadable.
        """
        self._prepare()
        at = max(self._index.place_before(position) or 0, segment.start)
        while at <= position:
            at = self._next_part(segment, at, position).stop

    def examine_missing(self, segment: Segment) -> None:
        """The file of a segment is missing: all of it is unreadable."""
        self._prepare()
        stop = min(segment.end, self._state.end)
        where = str(segment_path(self._files.directory, segment.start))
        lost = [
            Removed(one.series.topic, one.series.source, one.first, one.stop)
            for one in self._extents(segment.start, stop)
        ]
        self._state.unreadable.add(
            UnreadablePart(segment.start, stop, where, "the file is missing", tuple(lost))
        )

    def _next_part(self, segment: Segment, at: int, position: int) -> UnreadablePart:
        """The first unreadable part from `at` on, which is at or before `position`."""
        stop = min(segment.end, self._state.end)
        try:
            for chunk in scan(self._files, segment, at, stop):
                if position < chunk.end:
                    raise LocalError(
                        f"position {position} is inside a record; use only positions that the journal returned"
                    )
        except Damaged as damage:
            known = self._state.unreadable.at(damage.position)
            return known or self._add(segment, damage, stop)
        raise AssertionError(f"position {position} is before the end {stop}")

    def _add(self, segment: Segment, damage: Damaged, end: int) -> UnreadablePart:
        position = damage.position
        stop = self._continues(segment, position, end)
        path = segment_path(self._files.directory, segment.start)
        where = f"{path} byte {position - segment.start}"
        part = UnreadablePart(position, stop, where, damage.why, tuple(self._lost(segment, position, stop)))
        self._state.unreadable.add(part)
        return part

    def _continues(self, segment: Segment, position: int, end: int) -> int:
        """Where the log continues: at the next valid frame, no later than the first valid one that the index knows."""
        file_end = segment.start + self._files.size(segment.start)
        while position < min(end, file_end):
            known = self._known_after(position, end)
            position = continuation(self._files, segment, position, known)
            if position < known or self._is_valid(segment, known, end):
                return position
        return end

    def _known_after(self, position: int, end: int) -> int:
        with self._state.lock:
            fresh = [one.position for one in self._state.series.fresh if one.position > position]
        saved = self._index.place_after(position)
        return min([end, *fresh, *([] if saved is None else [saved])])

    def _is_valid(self, segment: Segment, position: int, end: int) -> bool:
        try:
            return next(scan(self._files, segment, position, end), None) is not None
        except Damaged:
            return False

    def _lost(self, segment: Segment, position: int, stop: int) -> list[Removed]:
        """The events that lie in the part, as far as the index knows them."""
        low = max(segment.start, position - REACH_BYTES)
        claims = [extent for extent in self._extents(low, stop) if position < extent.end <= self._state.end]
        missing: dict[tuple[str, bytes], SeqSet] = {}
        for claim in claims:
            series = (claim.series.topic, claim.series.source)
            missing.setdefault(series, SeqSet()).add(claim.first, claim.stop)
        for chunk in self._around(segment, claims, position, stop):
            for head in (entry.head for entry in chunk.entries):
                if (seqs := missing.get((head.topic, head.source))) is not None:
                    seqs.discard(head.first, head.stop)
        return [Removed(*series, *bounds) for series, seqs in missing.items() for bounds in seqs.ranges()]

    def _around(
        self, segment: Segment, claims: Sequence[Extent], position: int, stop: int
    ) -> Iterable[Chunk]:
        """The valid chunks of the extents, before and after the part."""
        if claims:
            yield from valid_chunks(self._files, segment, min(one.position for one in claims), position)
            end = min(max(one.end for one in claims), self._state.end)
            yield from valid_chunks(self._files, segment, stop, end)

    def _extents(self, low: int, high: int) -> list[Extent]:
        """The extents that begin in `[low, high)`: in the index, or not saved yet."""
        state = self._state
        with state.lock:
            fresh = [extent for extent in state.series.fresh if low <= extent.position < high]
        return [*self._index.held(state.series, low, high), *fresh]

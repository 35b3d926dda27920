"""Reading verified chunks from segment files."""

from __future__ import annotations

from collections import deque
from typing import Final

from reknit.frame import peek
from reknit.store.log.frames import Damaged, parse
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles
from reknit.store.log.tail import Chunk

_RECENT_MAX: Final = 8
_RECENT_BYTES: Final = 2 << 20


class SegmentChunks:
    """Reads chunks from segment files.

    It caches the chunks that the last few reads found behind the requested one.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._recent: deque[dict[int, Chunk]] = deque(maxlen=_RECENT_MAX)

    def load(self, segment: Segment, position: int, stop: int, max_bytes: int) -> Chunk:
        """The chunk at `position`: batches within `max_bytes` (one at least), or a record. Raises `Damaged`."""
        for seen in self._recent:
            if position in seen:
                return seen[position]
        chunks = self._read(segment, position, min(max_bytes, stop - position))
        if len(chunks) > 1 and chunks[-1].end - position <= _RECENT_BYTES:
            self._recent.append({chunk.position: chunk for chunk in chunks})
        return chunks[0]

    def _read(self, segment: Segment, position: int, size: int) -> list[Chunk]:
        while True:
            view = memoryview(self._files.pread(segment.start, position - segment.start, size))
            try:
                chunks, _ = parse(view, position, segment)
            except Damaged as damage:
                if damage.chunks:
                    return damage.chunks  # the valid frames before the damage are served
                raise
            if chunks:
                return chunks
            size = _longer(self._files, segment, position, view)


def _longer(files: SegmentFiles, segment: Segment, position: int, view: memoryview) -> int:
    """The size of the frame of which `view` is only a part."""
    if len(view) < 8:
        view = memoryview(files.pread(segment.start, position - segment.start, 8))
    length = peek(view, 0, len(view))[1]
    if length <= len(view) or position - segment.start + length > files.size(segment.start):
        raise Damaged(position, "a frame is cut off", [])
    return length

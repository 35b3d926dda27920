"""Frames from disk: checked and separated, with as little Python per batch as possible.

Every byte from disk is checked before it is served. With xxh3 this costs less than the copy out of the page cache. The
other checks of `check_head`, such as lengths that add up, were made when the batch arrived.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from reknit.batch_layout import read_head
from reknit.entries import Entry
from reknit.errors import MalformedFrame
from reknit.frame import KIND_BATCH, KIND_RECORD, PREFIX, PREFIX_BYTES, peek
from reknit.store.log.retention import Segment
from reknit.store.log.tail import Chunk


class Damaged(Exception):
    """The bytes at a position are not a valid frame; `chunks` has the valid frames before it."""

    def __init__(self, position: int, why: str, chunks: list[Chunk]) -> None:
        super().__init__(position, why)
        self.position, self.why, self.chunks = position, why, chunks


class _ChunkBuilder:
    """Collects batches that lie back to back into chunks; a record is a chunk of its own."""

    def __init__(self, view: memoryview, position: int, segment: Segment) -> None:
        self._view, self._position, self._segment = view, position, segment
        self._entries: list[Entry] = []
        self._low = 0
        self.chunks: list[Chunk] = []

    def add_batch(self, at: int) -> None:
        self._entries.append(Entry(self._position + at, read_head(self._view, at)))

    def add_record(self, at: int, length: int) -> None:
        self.flush(at)
        self._low = at + length
        self.chunks.append(Chunk(self._position + at, self._view[at : self._low], (), self._segment))

    def flush(self, at: int) -> None:
        """The batches up to `at` are a chunk."""
        if self._entries:
            data = self._view[self._low : at]
            self.chunks.append(Chunk(self._position + self._low, data, self._entries, self._segment))
            self._entries = []


def parse(view: memoryview, position: int, segment: Segment) -> tuple[list[Chunk], int]:
    """The whole frames in `view` as chunks (batches back to back, or one record), and how many bytes they take.

    A frame that is cut off at the end is left. Raises `Damaged` at the first invalid frame.
    """
    builder = _ChunkBuilder(view, position, segment)
    at, size = 0, len(view)
    try:
        while True:
            kind, length = peek(view, at, size - at)
            if not length or at + length > size:
                break
            _check(view, at, length)
            if kind == KIND_BATCH:
                builder.add_batch(at)
            elif kind == KIND_RECORD:
                builder.add_record(at, length)
            else:
                raise MalformedFrame(f"a journal has no frames of kind {kind}", f"position {position + at}")
            at += length
    except MalformedFrame as error:
        builder.flush(at)
        raise Damaged(position + at, error.what, builder.chunks) from None
    builder.flush(at)
    return builder.chunks, at


def _check(view: memoryview, at: int, length: int) -> None:
    found = PREFIX.unpack_from(view, at)[4]
    seed = int.from_bytes(view[at : at + 8], "little")
    if xxh3_64_intdigest(view[at + PREFIX_BYTES : at + length], seed=seed) != found:
        raise MalformedFrame("the checksum does not match the content", f"{length} bytes")


def valid_frame_after(data: bytes, start: int) -> int | None:
    """Where the next valid frame at or after `start` begins; None if there is none. Frames are 8-aligned."""
    view = memoryview(data)
    at = data.find(b"RK", start)
    while at >= 0:
        if at % 8 == 0 and _is_frame(view, at):
            return at
        at = data.find(b"RK", at + 1)
    return None


def _is_frame(view: memoryview, at: int) -> bool:
    try:
        kind, length = peek(view, at, len(view) - at)
        if kind not in (KIND_BATCH, KIND_RECORD) or at + length > len(view):
            return False
        _check(view, at, length)
    except MalformedFrame:
        return False
    return True

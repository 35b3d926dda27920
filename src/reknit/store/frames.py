"""Frames as they come from disk: checked, told apart, with as little Python per batch as possible.

Every byte that comes from disk is checked before it is served. xxh3 makes that cheaper than the copy out of
the page cache. What `check_head` proves beyond the checksum (lengths that add up) was proven when the batch
came in.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from reknit.batch_layout import read_head
from reknit.entries import Entry
from reknit.errors import MalformedFrame
from reknit.frame import KIND_BATCH, KIND_RECORD, PREFIX, PREFIX_BYTES, peek
from reknit.store.retention import Segment
from reknit.store.tail import Chunk


class Damaged(Exception):
    """The bytes at a position are not a valid frame; `chunks` are the valid ones before."""

    def __init__(self, position: int, why: str, chunks: list[Chunk]) -> None:
        super().__init__(position, why)
        self.position, self.why, self.chunks = position, why, chunks


def parse(view: memoryview, position: int, segment: Segment) -> tuple[list[Chunk], int]:
    """The whole frames in `view` as chunks (batches back to back, or one record), and how many bytes they
    take.

    A frame that is cut short at the end is left. Raises `Damaged` at the first frame that is not valid.
    """
    chunks: list[Chunk] = []
    entries: list[Entry] = []
    low = at = 0
    size = len(view)
    try:
        while True:
            kind, length = peek(view, at, size - at)
            if not length or at + length > size:
                break
            _check(view, at, length)
            if kind == KIND_BATCH:
                entries.append(Entry(position + at, read_head(view, at)))
            elif kind == KIND_RECORD:
                _flush(chunks, entries, view, low, at, position, segment)
                entries = []
                low = at + length
                chunks.append(Chunk(position + at, view[at:low], (), segment))
            else:
                raise MalformedFrame(f"a journal holds no frame of kind {kind}", f"position {position + at}")
            at += length
    except MalformedFrame as error:
        _flush(chunks, entries, view, low, at, position, segment)
        raise Damaged(position + at, error.what, chunks) from None
    _flush(chunks, entries, view, low, at, position, segment)
    return chunks, at


def _check(view: memoryview, at: int, length: int) -> None:
    found = PREFIX.unpack_from(view, at)[4]
    seed = int.from_bytes(view[at : at + 8], "little")
    if xxh3_64_intdigest(view[at + PREFIX_BYTES : at + length], seed=seed) != found:
        raise MalformedFrame("checksum does not match the content", f"{length} bytes")


def _flush(
    chunks: list[Chunk],
    entries: list[Entry],
    view: memoryview,
    low: int,
    high: int,
    position: int,
    segment: Segment,
) -> None:
    if entries:
        chunks.append(Chunk(position + low, view[low:high], entries, segment))


def valid_frame_after(data: bytes, start: int) -> int | None:
    """Where, at or after `start`, the next valid frame begins; None if there is none. Frames are 8-aligned."""
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

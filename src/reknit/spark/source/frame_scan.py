"""Finds the frames in a block of bytes: one short step of Python per frame, everything else vectorised.

The headers of all batches become one array with a field per header field, so that filters and columns are
vectorised even if the batches are small.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from reknit.batch_layout import HEADER_BYTES, HEADER_FIELDS, sections
from reknit.errors import MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, KIND_BATCH, KIND_RECORD, MAGIC, PREFIX, PREFIX_BYTES

__all__ = ["HEADER_TYPE", "ScannedFrames", "scan"]

Ints = npt.NDArray[np.int64]

# Seqs and times are below 2**63, and NumPy computes with signed numbers more readily.
_NUMPY_TYPES: Final = {"B": "u1", "H": "<u2", "I": "<u4", "Q": "<i8", "16s": "V16"}
HEADER_TYPE: Final = np.dtype([(name, _NUMPY_TYPES[code]) for name, code in HEADER_FIELDS])
assert HEADER_TYPE.itemsize == HEADER_BYTES

_HEADER_PLACES: Final = np.arange(HEADER_BYTES, dtype=np.int64)


class ScannedFrames:
    """Some of the batches in `view`, which starts at `position` of a journal.

    For each batch, `offsets` has its offset in the view, `heads` its header, and `skips` how many of its first
    events to leave out.
    """

    __slots__ = ("heads", "offsets", "position", "skips", "view")

    def __init__(
        self, position: int, view: memoryview, offsets: Ints, heads: npt.NDArray[Any], skips: Ints
    ) -> None:
        self.position, self.view = position, view
        self.offsets, self.heads, self.skips = offsets, heads, skips

    def __len__(self) -> int:
        return len(self.offsets)

    def pick(self, which: npt.NDArray[Any] | slice) -> ScannedFrames:
        """The frames that a mask or a slice selects."""
        return ScannedFrames(
            self.position, self.view, self.offsets[which], self.heads[which], self.skips[which]
        )

    def skipping(self, skips: Ints) -> ScannedFrames:
        """The same frames, without the first `skips` events of each."""
        return ScannedFrames(self.position, self.view, self.offsets, self.heads, skips)

    def positions(self) -> Ints:
        return self.offsets + self.position

    def counts(self) -> Ints:
        """How many events of each are read."""
        return self.heads["count"].astype(np.int64) - self.skips

    def sources(self) -> list[bytes]:
        return [bytes(source) for source in self.heads["source"].tolist()]

    def topics(self) -> list[str]:
        """The topic of each; equal topics are one object."""
        view, known = self.view, dict[bytes, str]()
        topics: list[str] = []
        places = (self.offsets + HEADER_BYTES).tolist()
        for at, size in zip(places, self.heads["topic_len"].tolist(), strict=True):
            raw = bytes(view[at : at + size])
            topic = known.get(raw)
            if topic is None:
                topic = known[raw] = raw.decode()
            topics.append(topic)
        return topics

    def sections(self) -> tuple[Ints, Ints, Ints]:
        """The offsets of each batch's columns, lengths and payloads in the view."""
        sizes = [self.heads[name].astype(np.int64) for name in ("topic_len", "columns_len", "count")]
        # `sections` computes with arrays just as with numbers.
        columns_at, lengths_at, block_at = cast(Any, sections)(*sizes)
        return columns_at + self.offsets, lengths_at + self.offsets, block_at + self.offsets


def scan(
    view: memoryview, position: int, *, records: list[tuple[int, memoryview]] | None = None, at: int = 0
) -> tuple[ScannedFrames, int]:
    """The complete, verified batches in `view`, and the offset of the first incomplete frame.

    Records are skipped, or added to `records` with their positions. Raises `MalformedFrame` for bytes that are not a
    frame. Zeros end the scan: a log has them where nothing was written yet.
    """
    offsets: list[int] = []
    unpack, digest, size = PREFIX.unpack_from, xxh3_64_intdigest, len(view)
    while at + PREFIX_BYTES <= size:
        magic, kind, _flags, length, found = unpack(view, at)
        if magic != MAGIC or length < PREFIX_BYTES + 8 or length > FRAME_BYTES_MAX:
            if magic == 0:
                break
            raise MalformedFrame("the journal has no valid frame", f"at position {position + at}")
        if at + length > size:
            break
        seed = int.from_bytes(view[at : at + 8], "little")
        if digest(view[at + PREFIX_BYTES : at + length], seed=seed) != found:
            raise MalformedFrame("checksum does not match the content", f"at position {position + at}")
        if kind == KIND_BATCH:
            offsets.append(at)
        elif kind == KIND_RECORD and records is not None:
            records.append((position + at, view[at : at + length]))
        at += length
    return _frames(view, position, offsets), at


def _frames(view: memoryview, position: int, offsets: list[int]) -> ScannedFrames:
    places = np.array(offsets, dtype=np.int64)
    raw = np.frombuffer(view, dtype=np.uint8)
    heads = raw[places[:, None] + _HEADER_PLACES].view(HEADER_TYPE).reshape(-1)
    return ScannedFrames(position, view, places, heads, np.zeros(len(places), dtype=np.int64))

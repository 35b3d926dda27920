"""Batches cut into pieces for datagrams, and joined again.

A batch is far larger than an Ethernet frame. If IP fragmented it, one lost fragment in forty would lose all forty. So
the sender cuts it into pieces, receivers request lost pieces one by one, and every member that holds the batch can
cut it the same way.
"""

from __future__ import annotations

from reknit.batch import Batch, parse_head
from reknit.errors import MalformedFrame
from reknit.frame import Buffer
from reknit.seqset import Range, SeqSet
from reknit.wire.groups import GroupPiece


def piece_count(length: int, size: int) -> int:
    """How many pieces of `size` bytes a batch of `length` bytes has.

    >>> piece_count(2800, 1400), piece_count(2801, 1400)
    (2, 3)
    """
    return -(-length // size)


class Partial:
    """A batch of which some pieces have arrived."""

    __slots__ = ("_data", "_wanted", "count", "first", "length", "size")

    def __init__(self, piece: GroupPiece) -> None:
        self.first, self.count = piece.first, piece.count
        self.length, self.size = piece.length, piece.size
        self._wanted = piece_count(piece.length, piece.size)
        self._data: dict[int, Buffer] = {}

    @property
    def stop(self) -> int:
        return self.first + self.count

    def add(self, piece: GroupPiece) -> bool:
        """Add a piece; True if the batch is complete. A duplicate, or a piece of another size, is ignored."""
        if piece.length == self.length and piece.size == self.size and piece.count == self.count:
            self._data.setdefault(piece.index, piece.data)
        return len(self._data) == self._wanted

    def missing(self, *, all_sent: bool) -> list[Range]:
        """Which pieces to request: all that are missing, or those before the last that arrived."""
        have = SeqSet.from_ranges((index, index + 1) for index in sorted(self._data))
        return have.missing(0, self._wanted if all_sent else have.last)

    def held(self) -> list[Range]:
        """Which pieces have arrived."""
        return SeqSet.from_ranges((index, index + 1) for index in sorted(self._data)).ranges()

    def pieces(self, source: bytes) -> list[GroupPiece]:
        """The pieces that have arrived, to send them to another member."""
        whole = (self.first, self.count, self.length, self.size)
        return [GroupPiece(source, *whole, index, 0, data) for index, data in sorted(self._data.items())]

    def join(self) -> bytes:
        return b"".join([self._data[index] for index in range(self._wanted)])


def parse_batch(piece: GroupPiece, data: Buffer) -> Batch | None:
    """The batch, or None if its bytes do not match the piece: they are treated as lost."""
    try:
        head = parse_head(data)
    except MalformedFrame:
        return None
    if (head.source, head.first, head.count, head.length) != (
        piece.source,
        piece.first,
        piece.count,
        len(data),
    ):
        return None
    return Batch(head, data, whole=piece.place if data is piece.data else None)

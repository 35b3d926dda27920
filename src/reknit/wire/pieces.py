"""Batches cut for datagrams, and put together again.

A batch is far larger than what an Ethernet frame carries. Were it left to IP, one lost fragment in forty
would cost all forty; so the sender cuts, a lost piece is asked for alone, and anyone who holds the batch can
cut it the same way again.
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
    """A batch of which some pieces are there."""

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
        """True if the batch is whole with it. One that was there, or is cut otherwise, changes nothing."""
        if piece.length == self.length and piece.size == self.size and piece.count == self.count:
            self._data.setdefault(piece.index, piece.data)
        return len(self._data) == self._wanted

    def missing(self, *, all_sent: bool) -> list[Range]:
        """Which pieces to ask for: all that lack, or those before one that came."""
        have = SeqSet.from_ranges((index, index + 1) for index in sorted(self._data))
        return have.missing(0, self._wanted if all_sent else have.last)

    def held(self) -> list[Range]:
        """Which pieces are there."""
        return SeqSet.from_ranges((index, index + 1) for index in sorted(self._data)).ranges()

    def pieces(self, source: bytes) -> list[GroupPiece]:
        """What is there, to be sent to another."""
        whole = (self.first, self.count, self.length, self.size)
        return [GroupPiece(source, *whole, index, 0, data) for index, data in sorted(self._data.items())]

    def join(self) -> bytes:
        return b"".join([self._data[index] for index in range(self._wanted)])


def parse_batch(piece: GroupPiece, data: Buffer) -> Batch | None:
    """The batch, or None if its bytes are not what was promised: it is as if they had been lost."""
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

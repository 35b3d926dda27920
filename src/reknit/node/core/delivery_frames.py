"""The frames of a delivery, made once for all subscribers that get the same."""

from __future__ import annotations

from collections.abc import Sequence

from reknit.frame import Buffer
from reknit.protocol.effects import DeliverRuns, RunSlice
from reknit.wire.codec import encode
from reknit.wire.messages import Deliver


class DeliveryFrames:
    """Remembers the last delivery: subscribers with one pattern get the same slices one after the other."""

    def __init__(self) -> None:
        self._pieces: list[RunSlice] | None = None
        self._cuts: list[Buffer] = []
        self._header: tuple[int, int, int] = (-1, 0, 0)
        self._buffers: Sequence[Buffer] = ()

    def buffers(self, delivery: DeliverRuns) -> Sequence[Buffer]:
        """The header of a delivery, and its batches as stored bytes."""
        header = (delivery.sub, delivery.size, delivery.position)
        if delivery.pieces is not self._pieces:
            self._pieces = delivery.pieces
            self._cuts = [piece.run.cut(piece.low, piece.high) for piece in delivery.pieces]
        elif header == self._header:
            return self._buffers
        self._header = header
        self._buffers = [encode(Deliver(*header)), *self._cuts]
        return self._buffers

    def release(self) -> None:
        """Everything was sent: the bytes need not stay in memory."""
        self._pieces, self._cuts, self._buffers = None, [], ()

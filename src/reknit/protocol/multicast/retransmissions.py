"""Retransmissions: a batch that several members requested in one turn is sent once.

A batch that one member requested goes to that member; one that several requested goes to all.
"""

from __future__ import annotations

from reknit.batch import Batch
from reknit.protocol.multicast.effects import SendBatch
from reknit.seqset import Range, SeqSet
from reknit.wire.pieces import piece_count

RECENT_MAX = 4096
"""How many recently retransmitted batches are remembered, before old ones are cleared."""


class _Retransmission:
    __slots__ = ("askers", "batch", "pieces", "size")

    def __init__(self, batch: Batch, size: int) -> None:
        self.batch, self.size = batch, size
        self.askers: set[bytes] = set()
        self.pieces = SeqSet()


class Retransmissions:
    """Collects requests until the end of a turn, and remembers for a short while who was answered."""

    def __init__(self, recent_s: float) -> None:
        self._recent_s = recent_s
        self._due: dict[tuple[bytes, int], _Retransmission] = {}
        self._recent: dict[tuple[bytes, int], tuple[bytes, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, asker: bytes, batch: Batch, size: int, pieces: list[Range] | None = None) -> None:
        """One member requests a batch, or some of its pieces."""
        due = self._due.setdefault((batch.source, batch.first), _Retransmission(batch, size))
        due.askers.add(asker)
        count = piece_count(batch.head.length, size)
        for start, stop in [(0, count)] if pieces is None else pieces:
            if start < min(stop, count):
                due.pieces.add(start, min(stop, count))

    def take(self, now: float) -> list[SendBatch]:
        """Return everything that was requested since the last call."""
        out = [self._send(key, one, now) for key, one in self._due.items() if one.pieces]
        self._due.clear()
        if len(self._recent) > RECENT_MAX:
            self._recent = {key: entry for key, entry in self._recent.items() if entry[1] > now}
        return out

    def _send(self, key: tuple[bytes, int], one: _Retransmission, now: float) -> SendBatch:
        asker, until = self._recent.get(key, (b"", 0.0))
        askers = one.askers | ({asker} if until > now else set())
        self._recent[key] = (next(iter(sorted(one.askers))), now + self._recent_s)
        peer = next(iter(askers)) if len(askers) == 1 else None
        return SendBatch(peer, one.batch, one.size, one.pieces.ranges())

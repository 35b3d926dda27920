"""Whose dead letters wait: by topic, and by the identity that owns the source of their events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.decoding import UNREADABLE
from reknit.errors import Gone
from reknit.ledger import Ledger
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal

PAGE_SEQS: Final = 1_000
SCAN_MAX: Final = 100_000
"""So many dead letters are read when a node starts; the shares of further ones are estimated from these."""


class _Origin(msgspec.Struct):
    """The fields of a dead letter that are read here."""

    topic: str
    source: bytes


_decoder = msgspec.msgpack.Decoder(_Origin)


class Share:
    """The dead letters of one topic or identity."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0.0


class DeadLetterShares:
    """The shares of the dead letters that wait on one node."""

    def __init__(self, journal: Journal, series: tuple[str, bytes]) -> None:
        self._journal, self._series = journal, series
        self.topics: dict[str, Share] = {}
        self.owners: dict[str, Share] = {}

    @property
    def _ledger(self) -> Ledger:
        return self._journal.ledger

    def begin(self, seqs: SeqSet) -> None:
        """These wait when the node starts."""
        for seen, (topic, source, size) in enumerate(self._read(seqs.ranges()), 1):
            self.came(topic, source, 1, size)
            if seen >= SCAN_MAX:
                self._scale(seqs.count / seen)
                return

    def _scale(self, factor: float) -> None:
        for share in (*self.topics.values(), *self.owners.values()):
            share.count, share.bytes = int(share.count * factor), share.bytes * factor

    def came(self, topic: str, source: bytes, count: int, size: float) -> None:
        """More dead letters of events of a source wait."""
        _add(self.topics, topic, count, size)
        if owner := self._ledger.owners.get(source, ""):
            _add(self.owners, owner, count, size)

    def back(self, ranges: Iterable[Range]) -> None:
        """Dead letters wait again."""
        for topic, source, size in self._read(ranges):
            self.came(topic, source, 1, size)

    def went(self, ranges: Iterable[Range]) -> None:
        """Dead letters do not wait any more."""
        for topic, source, size in self._read(ranges):
            self.came(topic, source, -1, -size)

    def none_is_left(self) -> None:
        """No dead letter waits: forget what was estimated wrongly."""
        self.topics.clear()
        self.owners.clear()

    def _read(self, ranges: Iterable[Range]) -> Iterator[tuple[str, bytes, float]]:
        """The topic, source and size of every dead letter that is held."""
        for start, stop in ranges:
            for low in range(start, stop, PAGE_SEQS):
                high = min(low + PAGE_SEQS, stop)
                for entry in self._journal.find(*self._series, low, high):
                    try:
                        batch = Batch.parse(self._journal.fetch(entry))
                    except Gone:
                        continue
                    yield from _origins(batch, low, high)


def _origins(batch: Batch, low: int, high: int) -> Iterator[tuple[str, bytes, float]]:
    size, payloads = batch.head.length / batch.count, batch.payloads()
    for seq in range(max(low, batch.first), min(high, batch.stop)):
        try:
            origin = _decoder.decode(payloads[seq - batch.first])
        except UNREADABLE:
            continue
        yield origin.topic, origin.source, size


def _add(shares: dict[str, Share], key: str, count: int, size: float) -> None:
    share = shares.setdefault(key, Share())
    share.count += count
    share.bytes += size
    if share.count <= 0:
        del shares[key]

"""Publishes batches that have a source and seqs already at a node, until they are durable there.

    put             they wait to be acknowledged: SendBatches, unless the node asked to wait
    put_before      the same for batches that were missing: their source is sent again from the first one on
    Ack             durable there: BatchesStored
    Expect          the node misses events before those that it got: SendBatches, or GapFound if they are not here
    fill, skip      what was found of a gap is put in; what was not is ReportLost
    Refuse          the node will never take them: BatchesRefused; it continues after those that no node would take
    Hold, Go        the node asks to wait, and to go on: everything is sent again
    hold, resend    the same for a node that is away, and there again

The node drops what it gets twice, so sending again does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.outcome import Code
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.recovery.loss_reports import TEXT
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.unacked_batches import UnackedBatches
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse

ALL: Final = 1 << 63


class SendBatches(msgspec.Struct, frozen=True):
    """Send these batches to the node, in this order."""

    batches: list[Batch]


class BatchesStored(msgspec.Struct, frozen=True):
    """The node has these batches in its journal."""

    batches: list[Batch]


class BatchesRefused(msgspec.Struct, frozen=True):
    """The node will never take these batches, of one source, and why."""

    source: bytes
    batches: list[Batch]
    code: int
    text: str


class GapFound(msgspec.Struct, frozen=True):
    """The node expects events first that are not here."""

    gap: Gap


class ReportLost(msgspec.Struct, frozen=True):
    """Tell the node that `[start, stop)` will never arrive."""

    series: Series
    start: int
    stop: int
    text: str
    is_ahead: bool = False
    """Whether events before them may still come."""


Input = Ack | Expect | Refuse | Hold | Go
Effect = SendBatches | BatchesStored | BatchesRefused | GapFound | ReportLost


class ReplicaPublisher:
    """Publishes for any number of sources. There is room for more while less than `bytes_max` is unacknowledged.

    >>> publisher = ReplicaPublisher(bytes_max=1 << 20)
    >>> publisher.put([Batch.build(b"s" * 16, "plant/a", 4, [b"x", b"y"], 0)])
    >>> publisher.receive(Expect(b"s" * 16, 3), "node", 0.0)
    >>> [type(effect).__name__ for effect in publisher.take_effects()]
    ['SendBatches', 'GapFound']
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._unacked = UnackedBatches()
        self._is_held = False
        self._held_sources: set[bytes] = set()
        """Sources that the node asked to wait, while others go on."""
        self._effects: list[Effect] = []

    @property
    def has_room(self) -> bool:
        """Whether more batches may be put in."""
        return self._unacked.bytes < self._bytes_max

    @property
    def unacked_bytes(self) -> int:
        """How much was put in and is not known to be durable."""
        return self._unacked.bytes

    def unacked(self) -> list[Batch]:
        """The batches that are not known to be durable."""
        return list(self._unacked)

    def waits_before(self, source: bytes, seq: int) -> bool:
        """Whether batches of a source that begin before `seq` are not known to be durable."""
        return any(batch.first < seq for batch in self._unacked.of(source))

    def unacked_sources(self) -> list[bytes]:
        """The sources with batches that are not known to be durable."""
        return self._unacked.sources()

    # -- batches

    def put(self, batches: list[Batch]) -> None:
        """Give these to the node, in this order."""
        self._unacked.add(batches)
        if not self._is_held:
            self._send([batch for batch in batches if batch.source not in self._held_sources])

    def put_before(self, batches: list[Batch]) -> None:
        """Give these to the node before the unacknowledged ones of their source: they were missing."""
        self._unacked.add(batches)
        for source in dict.fromkeys(batch.source for batch in batches):
            self._unacked.sort(source)
            self._send(self._unacked.of(source))  # also to a node that asked to wait: it expects them

    def fill(self, gap: Gap, found: list[Batch], text: str = TEXT) -> int:
        """Fill a gap with the batches that were found.

        Events that are missing before the first of them are lost. Returns how many.
        """
        first = found[0].first if found else gap.stop
        self.skip(gap.series, gap.start, first, found, text)
        return max(first - gap.start, 0)

    def skip(
        self, series: Series, start: int, stop: int, found: list[Batch], text: str, is_ahead: bool = False
    ) -> None:
        """The node expects `[start, stop)`, which will never arrive: it continues with the batches that were found."""
        if start < stop:
            self._effects.append(ReportLost(series, start, stop, text, is_ahead))
        if found:
            self.put_before(found)
        else:
            self._send(self._unacked.of(series[1]))

    def withdraw(self, source: bytes) -> list[Batch]:
        """Forget all batches of a source; returns them."""
        return self._unacked.remove(source, ALL)

    def take_out(self, batch: Batch) -> bool:
        """Forget one batch. False if it is not here any more."""
        return self._unacked.discard(batch)

    @property
    def is_held(self) -> bool:
        """Whether batches that are put in wait here."""
        return self._is_held

    def hold(self) -> None:
        """The node is away: nothing is sent until `resend`."""
        self._is_held = True

    def resend(self) -> None:
        """The node is there again: send everything that is not acknowledged."""
        self._is_held = False
        self._held_sources.clear()
        self._send(self._unacked)

    def _send(self, batches: Iterable[Batch]) -> None:
        if batches := list(batches):
            self._effects.append(SendBatches(batches))

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node."""
        match message:
            case Ack(source=source, seq=seq):
                if stored := self._unacked.remove(source, seq + 1):
                    self._effects.append(BatchesStored(stored))
            case Expect(source=source, seq=seq):
                self._expected(source, seq)
            case Refuse():
                self._refused(message)
            case Hold(sources=sources):
                self._is_held = self._is_held or not sources
                self._held_sources.update(sources)
            case Go():
                self.resend()
            case _:
                assert_never(message)

    def _refused(self, message: Refuse) -> None:
        """Events that are not valid there are dead letters there, and later ones of their source must not wait."""
        refused = self._unacked.remove(message.source, message.stop)
        self._effects.append(BatchesRefused(message.source, refused, message.code, message.text))
        for batch in refused if message.code == Code.INVALID_ARGUMENT else ():
            self.skip((batch.topic, batch.source), batch.first, batch.stop, [], message.text)

    def _expected(self, source: bytes, seq: int) -> None:
        wanted = [batch for batch in self._unacked.of(source) if batch.stop > seq]
        if wanted and wanted[0].first <= seq:
            self._send(wanted)
        elif wanted:
            first = wanted[0]
            self._effects.append(GapFound(Gap((first.topic, source), seq, first.first)))

    def tick(self, now: float) -> None:
        """Nothing has a deadline."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self._effects = self._effects, []
        return effects


_MACHINE: type[Machine[Input, Effect]] = ReplicaPublisher

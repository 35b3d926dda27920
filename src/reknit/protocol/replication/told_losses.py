"""Losses that the source reported, until the target has recorded them."""

from __future__ import annotations

import msgspec

from reknit.outcome import Reason
from reknit.protocol.replication.gap import Gap


class Loss(msgspec.Struct, frozen=True):
    """Events that the source reported as lost, and its reason."""

    gap: Gap
    reason: str = str(Reason.RETENTION)

    @property
    def is_ahead(self) -> bool:
        """Whether events before them may still come: damage hits any, other losses are told in order."""
        return self.reason == str(Reason.DAMAGED)


class ToldLosses:
    """By source, in seq order. The target is told of the first one, and of the next when it has recorded that."""

    def __init__(self) -> None:
        self._by_source: dict[bytes, list[Loss]] = {}
        self._told: set[bytes] = set()
        """Sources of which the target was told the first loss."""

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def add(self, loss: Loss) -> None:
        """The source reported a loss. It does so again when it is connected anew."""
        losses = self._by_source.setdefault(loss.gap.series[1], [])
        if loss not in losses:
            losses.append(loss)
            losses.sort(key=lambda one: one.gap.start)

    def first(self, source: bytes) -> Loss | None:
        """The first loss of a source that the target has not recorded."""
        return next(iter(self._by_source.get(source, ())), None)

    def untold(self) -> list[Loss]:
        """The first loss of every source of which the target was not told."""
        return [losses[0] for source, losses in self._by_source.items() if source not in self._told]

    def tell(self, source: bytes) -> None:
        """The target is told of the first loss of a source."""
        self._told.add(source)

    def tell_again(self, source: bytes) -> None:
        """The target needs earlier events first."""
        self._told.discard(source)

    def tell_all_again(self) -> None:
        """The target may have forgotten what it has not recorded."""
        self._told.clear()

    def recorded(self, source: bytes, seq: int) -> list[Loss]:
        """The target has everything up to this seq, or has recorded that it is lost; returns those losses."""
        losses = self._by_source.get(source)
        if losses is None or losses[0].gap.stop > seq + 1:
            return []
        self._told.discard(source)
        left = [loss for loss in losses if loss.gap.stop > seq + 1]
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
        return [loss for loss in losses if loss.gap.stop <= seq + 1]

"""Losses that the source reported, until the target has recorded them."""

from __future__ import annotations

from reknit.protocol.replication.gap import Gap


class ToldLosses:
    """By source, in seq order. The target is told of the first one, and of the next when it has recorded that."""

    def __init__(self) -> None:
        self._by_source: dict[bytes, list[Gap]] = {}
        self._told: set[bytes] = set()
        """Sources of which the target was told the first loss."""

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def add(self, lost: Gap) -> None:
        """The source reported a loss."""
        losses = self._by_source.setdefault(lost.series[1], [])
        losses.append(lost)
        losses.sort(key=lambda one: one.start)

    def first(self, source: bytes) -> Gap | None:
        """The first loss of a source that the target has not recorded."""
        return next(iter(self._by_source.get(source, ())), None)

    def untold(self) -> list[Gap]:
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

    def recorded(self, source: bytes, seq: int) -> None:
        """The target has everything up to this seq, or has recorded that it is lost."""
        losses = self._by_source.get(source)
        if losses is None or losses[0].stop > seq + 1:
            return
        self._told.discard(source)
        left = [lost for lost in losses if lost.stop > seq + 1]
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]

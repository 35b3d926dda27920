"""How fast the streams of each identity may arrive: at its quota, a publisher is given room for more bytes later."""

from __future__ import annotations

from collections.abc import Callable

from reknit.node.core.core_quotas import CoreQuotas
from reknit.protocol.machine import Peer

GiveRoom = Callable[[Peer, bytes, int], None]
"""Tells a publisher how many bytes of a stream (its source) it may send in total."""


class RoomQuotas:
    """Holds back the room of publishers that wait. Without quotas for publishing, everybody is given it at once.

    A publisher may be in debt for as much as it was given room for.
    """

    def __init__(self, quotas: CoreQuotas | None, give: GiveRoom) -> None:
        is_on = quotas is not None and quotas.publishing is not None
        self._quotas = quotas if is_on else None
        self._give = give
        self._held: dict[bytes, tuple[Peer, int]] = {}
        """By source: who waits, and for how much room."""

    def charge(self, peer: Peer, size: int, is_first: bool, now: float) -> None:
        """Bytes of a stream arrived."""
        if self._quotas is not None:
            self._quotas.rates.charge(self._quotas.who(peer), int(is_first), size, now)

    def give(self, peer: Peer, source: bytes, total: int, now: float) -> None:
        """A publisher may send more, now or when its quota allows it."""
        if self._quotas is None or self._ready_at(peer, now) <= now:
            self._give(peer, source, total)
        else:
            if source not in self._held:
                self._quotas.rates.waited(self._quotas.who(peer))
            self._held[source] = (peer, total)

    def _ready_at(self, peer: Peer, now: float) -> float:
        return now if self._quotas is None else self._quotas.rates.ready(self._quotas.who(peer), now)[0]

    def tick(self, now: float) -> None:
        """Give room to those who have waited long enough."""
        for source, (peer, total) in list(self._held.items()):
            if self._ready_at(peer, now) <= now:
                del self._held[source]
                self._give(peer, source, total)

    def next_deadline(self, now: float) -> float | None:
        """When `tick` is due next."""
        return min([self._ready_at(peer, now) for peer, _ in self._held.values()]) if self._held else None

    def forget(self, source: bytes) -> None:
        """A stream has ended."""
        self._held.pop(source, None)

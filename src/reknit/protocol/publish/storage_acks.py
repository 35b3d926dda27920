"""Storage acks: how many caches stored a publisher's events, and up to which seq."""

from __future__ import annotations

from typing import Final

from reknit.protocol.machine import Peer

CACHES_MAX: Final = 1024


class StorageAcks:
    """Counts caches. Each reports the seq up to which it stored everything.

    >>> acks = StorageAcks(wanted=2)
    >>> acks.note("node", 9), acks.note("edge", 4), acks.note("core", 7)
    (0, 4, 7)
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._stored: dict[Peer, int] = {}

    def note(self, cache: Peer, seq: int) -> int:
        """A cache stored everything up to `seq`; returns the seq up to which enough caches have."""
        if cache in self._stored or len(self._stored) < CACHES_MAX:
            self._stored[cache] = max(seq, self._stored.get(cache, 0))
        return self.seq

    def forget(self, cache: Peer) -> None:
        """A cache restarted, and may have lost its events."""
        self._stored.pop(cache, None)

    @property
    def seq(self) -> int:
        """Everything up to here is stored by enough caches."""
        if len(self._stored) < self.wanted:
            return 0
        return sorted(self._stored.values(), reverse=True)[self.wanted - 1]

    def count(self, seq: int) -> int:
        """How many caches stored everything up to `seq`."""
        return sum(stored >= seq for stored in self._stored.values())

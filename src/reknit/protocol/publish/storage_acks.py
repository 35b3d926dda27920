"""Put replies: from how many caches a publisher's events are stored in, and up to which seq."""

from __future__ import annotations

from typing import Final

from reknit.protocol.machine import Peer

CACHES_MAX: Final = 1024


class Replies:
    """Counts caches. Each says up to which seq it stored everything.

    >>> replies = Replies(wanted=2)
    >>> replies.note("node", 9), replies.note("edge", 4), replies.note("core", 7)
    (0, 4, 7)
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._stored: dict[Peer, int] = {}

    def note(self, cache: Peer, seq: int) -> int:
        """A cache stored everything up to `seq`; gives the seq up to which enough have."""
        if cache in self._stored or len(self._stored) < CACHES_MAX:
            self._stored[cache] = max(seq, self._stored.get(cache, 0))
        return self.seq

    def forget(self, cache: Peer) -> None:
        """A cache began anew, and may have lost what it stored."""
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

"""Peers that were asked for missing events: each once until its gap closes, whoever closes it."""

from __future__ import annotations

from reknit.protocol.machine import Peer


class AskedPeers:
    """By source: the peers that were asked, and the first event behind the gap that each of them has.

    >>> asked = AskedPeers()
    >>> asked.ask(b"s", "a", first=9), asked.ask(b"s", "a", first=12), asked.ask(b"s", "b", first=20)
    (True, False, True)
    >>> asked.advance(b"s", 9, "c")
    >>> asked.ask(b"s", "a", first=15), asked.ask(b"s", "b", first=20)
    (True, False)
    """

    def __init__(self) -> None:
        self.by_source: dict[bytes, dict[Peer, int]] = {}
        """Always the same dictionary: whoever takes many batches sees at once that it is empty."""

    def __bool__(self) -> bool:
        return bool(self.by_source)

    def __repr__(self) -> str:
        return f"AskedPeers({self.by_source})"

    def ask(self, source: bytes, peer: Peer, first: int) -> bool:
        """A peer brings events from `first` on, and others are missing before them. Returns whether to ask for these."""
        asked = self.by_source.setdefault(source, {})
        if peer in asked:
            return False
        asked[peer] = first
        return True

    def advance(self, source: bytes, stop: int, peer: Peer) -> None:
        """A peer brought the events that were expected next, up to `stop`."""
        asked = self.by_source.get(source)
        if asked is not None:
            self._set(source, {one: first for one, first in asked.items() if first > stop and one != peer})

    def forget_source(self, source: bytes) -> None:
        """Nobody is asked for missing events of a source any more."""
        self.by_source.pop(source, None)

    def forget_peer(self, peer: Peer) -> None:
        """A peer is gone, or sends everything again."""
        for source, asked in list(self.by_source.items()):
            if peer in asked:
                self._set(source, {one: first for one, first in asked.items() if one != peer})

    def clear(self) -> None:
        """Everybody sends everything again."""
        self.by_source.clear()

    def _set(self, source: bytes, asked: dict[Peer, int]) -> None:
        if asked:
            self.by_source[source] = asked
        else:
            del self.by_source[source]

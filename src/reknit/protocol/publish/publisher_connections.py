"""The connections that publish, and which of them speaks for a source."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from reknit.protocol.machine import Peer


class Claim(Enum):
    """The answer to a connection that wants to publish as a source."""

    GRANTED = auto()
    SUPERSEDED = auto()
    """A newer connection publishes as this source."""
    TOO_MANY = auto()
    """There are as many sources as allowed."""


class PublisherConnections:
    """Connections in the order in which they came, and the sources that they claimed.

    >>> connections = PublisherConnections(sources_max=10)
    >>> connections.join("old"), connections.join("new"), connections.join("old")
    (1, 2, 1)
    >>> connections.claim(b"s", "new"), connections.claim(b"s", "old")
    (<Claim.GRANTED: 1>, <Claim.SUPERSEDED: 2>)
    """

    def __init__(self, sources_max: int) -> None:
        self._sources_max = sources_max
        self._numbers: dict[Peer, int] = {}
        """The peers that are connected, each with the number of its connection."""
        self._publishing: set[Peer] = set()
        self._joined = 0
        self._claims: dict[bytes, int] = {}
        """The connection that declared a lasting source last. Events from an older connection are refused: its
        program may be gone, and the next one was told where to continue."""
        self._superseded: dict[int, set[bytes]] = {}
        """By connection: the sources that it had claimed before another one did."""

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._numbers

    @property
    def claims(self) -> Mapping[bytes, int]:
        """By source: the number of the connection that claimed it last."""
        return self._claims

    def join(self, peer: Peer) -> int:
        """A peer is connected; returns the number of its connection."""
        number = self._numbers.get(peer)
        if number is None:
            self._joined += 1
            number = self._numbers[peer] = self._joined
        return number

    def publishes(self, peer: Peer) -> int:
        """A peer publishes: it is told when to wait and when to continue. Returns the number of its connection."""
        self._publishing.add(peer)
        return self.join(peer)

    def publishing(self) -> list[Peer]:
        """The peers that publish, in a stable order."""
        return sorted(self._publishing, key=repr)

    def claim(self, source: bytes, peer: Peer) -> Claim:
        """A peer declares a lasting source."""
        number = self.join(peer)
        if source not in self._claims and len(self._claims) >= self._sources_max:
            return Claim.TOO_MANY
        if self._claims.get(source, 0) > number:
            self._superseded.setdefault(number, set()).add(source)
            return Claim.SUPERSEDED
        before = self._claims.get(source, number)
        if before != number and before in self._numbers.values():
            self._superseded.setdefault(before, set()).add(source)
        self._claims[source] = number
        return Claim.GRANTED

    def speaks_for(self, source: bytes, peer: Peer) -> bool:
        """Whether no other connection claimed a source."""
        number = self._numbers[peer]
        return self._claims.get(source, number) == number

    def was_superseded(self, source: bytes, peer: Peer) -> bool:
        """Whether a peer had claimed a source, and another one claimed it since. One that only copies never claims."""
        return source in self._superseded.get(self._numbers[peer], ())

    def leave(self, peer: Peer) -> None:
        """A peer's connection is gone."""
        self._superseded.pop(self._numbers.pop(peer, 0), None)
        self._publishing.discard(peer)

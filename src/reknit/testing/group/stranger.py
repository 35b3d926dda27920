"""A stranger on the network of a simulated group, which sends members mutated copies of what it overhears.

It does not forge the ids of members: whoever does that can leave for them. A group with a key is safe from that, too.
"""

from __future__ import annotations

from random import Random
from typing import Final, TypeVar

from reknit.testing.fuzz.targets.datagrams import from_stranger, mutate_datagram
from reknit.wire.bundle import ENVELOPE

T = TypeVar("T")
PIECES: Final = 1
"""The first byte of a datagram's items, if they are pieces."""
OVERHEARD_MAX: Final = 200
"""How many datagrams it remembers."""


class Stranger:
    """Makes hostile datagrams."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._overheard: dict[bool, list[bytes]] = {}
        """By whether they are pieces of events: others are rare, and may do more harm."""

    def choice(self, among: list[T]) -> T:
        """One of several."""
        return self._rng.choice(among)

    def overhear(self, datagram: bytes) -> None:
        """Remember a datagram of a member, in place of another one."""
        known = self._overheard.setdefault(datagram[ENVELOPE.size] == PIECES, [])
        if len(known) < OVERHEARD_MAX:
            known.append(datagram)
        elif self._rng.random() < 0.05:
            known[self._rng.randrange(OVERHEARD_MAX)] = datagram

    def datagram(self) -> bytes:
        """One of its own; empty as long as it has heard nothing."""
        rng = self._rng
        if not self._overheard:
            return b""
        made = rng.choice(rng.choice(list(self._overheard.values())))
        for _ in range(rng.choice((0, 1, 1, 2))):
            made = mutate_datagram(rng, made)
        return from_stranger(rng, made)

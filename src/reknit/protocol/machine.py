"""The contract of every machine, so that the asyncio driver and the simulator can run the same object."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol, TypeVar

M = TypeVar("M", contravariant=True)
E = TypeVar("E")

Peer = Hashable
"""Who a message came from or goes to: an id that the driver gave out."""

JOURNAL: Final = "journal"
"""The peer behind answers from the journal: `Kept`, `Scanned`."""


class Machine(Protocol[M, E]):
    """Four methods. `now` is monotonic time in seconds; the caller's clock, real or virtual."""

    def receive(self, message: M, peer: Peer, now: float) -> None:
        """Something came in from a peer. Never raises for what a peer sent: that becomes an effect."""

    def tick(self, now: float) -> None:
        """Time passed. Called at or after `next_deadline()`; calling it more often does no harm."""

    def next_deadline(self) -> float | None:
        """When `tick` wants to be called next, or None."""

    def take_effects(self) -> list[E]:
        """What is to be done, in order: append, deliver, send. The machine forgets what was taken."""

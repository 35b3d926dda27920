"""The contract of every machine, so that the asyncio driver and the simulator can run the same object.

Also the inputs that machines of several packages share: changes of connections, and reports of the journal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Protocol, TypeVar

import msgspec

M = TypeVar("M", contravariant=True)
E = TypeVar("E")

Peer = Hashable
"""The other side of a message: an id that the driver assigned."""

JOURNAL: Final = "journal"
"""The peer of everything that the journal reports, such as `MadeDurable`."""


class Machine(Protocol[M, E]):
    """Four methods. `now` is monotonic time in seconds on the caller's clock, real or virtual."""

    def receive(self, message: M, peer: Peer, now: float) -> None:
        """An input from a peer. Never raises because of a peer's message: a bad message becomes an effect."""

    def tick(self, now: float) -> None:
        """Time passed. Called at or after `next_deadline()`; calling it more often does no harm."""

    def next_deadline(self) -> float | None:
        """When to call `tick` next, or None."""

    def take_effects(self) -> list[E]:
        """The effects to perform, in order: append, deliver, send. Each effect is returned once."""


def earliest(times: Iterable[float | None]) -> float | None:
    """The first of several deadlines, some of which are not set.

    >>> earliest([3.0, None, 2.0])
    2.0
    """
    first: float | None = None
    for at in times:  # faster than min() of a generator: this is asked after every message
        if at is not None and (first is None or at < first):
            first = at
    return first


class MadeDurable(msgspec.Struct, frozen=True):
    """The journal made every append up to this number durable."""

    number: int


class NextTurn(msgspec.Struct, frozen=True):
    """The next turn of the event loop began: for work that would have taken too long in one turn."""


class PeerJoined(msgspec.Struct, frozen=True):
    """A peer's connection is up. A later connection takes a source over from an earlier one."""


class PeerLeft(msgspec.Struct, frozen=True):
    """A peer's connection is gone."""

    is_abrupt: bool = False
    """Whether it is gone without a word: the peer did not say goodbye, and the node did not close it."""


class Connected(msgspec.Struct, frozen=True):
    """The connection to the node is up (again); `epoch` names the node's journal."""

    epoch: str = ""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection to the node is gone."""

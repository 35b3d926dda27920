"""A subscription that is open at a node, as the machines of recovery see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reknit.protocol.machine import Peer
from reknit.topic import Pattern


class SubscriptionView(Protocol):
    """Whose it is and what it gets; a queue of the dispatcher is one."""

    @property
    def peer(self) -> Peer: ...

    @property
    def sub(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def pattern(self) -> Pattern: ...

    @property
    def is_durable(self) -> bool:
        """Whether it has a name, and is owed its events."""

    @property
    def is_live(self) -> bool:
        """Whether it has been given everything that is durable."""


class SubscriptionViews(Protocol):
    """All of them, by peer and the peer's number of the subscription."""

    def __contains__(self, key: tuple[Peer, int], /) -> bool: ...

    def __getitem__(self, key: tuple[Peer, int], /) -> SubscriptionView: ...

    def values(self) -> Iterable[SubscriptionView]:
        """Each once, in the order in which they were opened."""

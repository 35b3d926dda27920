"""Open subscriptions for the tests of a node's recovery machines."""

from __future__ import annotations

import msgspec

from reknit.topic import Pattern


class Subscription(msgspec.Struct, frozen=True):
    """One that is open."""

    peer: int
    sub: int
    pattern: Pattern
    name: str = ""
    is_live: bool = True

    @property
    def is_durable(self) -> bool:
        return bool(self.name)


def opened(*subscriptions: Subscription) -> dict[tuple[object, int], Subscription]:
    return {(one.peer, one.sub): one for one in subscriptions}

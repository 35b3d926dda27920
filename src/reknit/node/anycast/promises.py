"""Outcomes that publishers and subscribers are told: not before the record that they rest on is durable."""

from __future__ import annotations

from collections import deque

import msgspec

from reknit.protocol.machine import Peer
from reknit.wire.outcomes import RangeOutcome

SubscriptionKey = tuple[Peer, int]
"""A connection, and the number of a subscription on it."""


class Promise(msgspec.Struct, frozen=True):
    """Tell these outcomes to publishers, by source, and confirm these settlements to subscribers."""

    told: dict[bytes, list[RangeOutcome]]
    settled: dict[SubscriptionKey, int]
    """By subscription: the number of the last `Settle` that is confirmed."""


class Promises:
    """The promises of one node, in the order of their records.

    >>> promises = Promises()
    >>> promises.add(7, Promise({}, {(1, 1): 3}))
    >>> promises.due(6), [promise.settled for promise in promises.due(7)]
    ([], [{(1, 1): 3}])
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Promise]] = deque()

    def add(self, number: int, promise: Promise) -> None:
        """Keep this promise when the record with this number is durable."""
        self._waiting.append((number, promise))

    def forget(self, source: bytes) -> None:
        """The publisher of a source comes back, and is told all outcomes from the ledger."""
        for _, promise in self._waiting:
            promise.told.pop(source, None)

    def is_due(self, durable_number: int) -> bool:
        """Whether some promise may be kept."""
        return bool(self._waiting) and self._waiting[0][0] <= durable_number

    def due(self, durable_number: int) -> list[Promise]:
        """The promises to keep now."""
        found: list[Promise] = []
        while self.is_due(durable_number):
            found.append(self._waiting.popleft()[1])
        return found

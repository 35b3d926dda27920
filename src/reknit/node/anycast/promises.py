"""Outcomes that publishers and subscribers are told: not before the record that they rest on is durable."""

from __future__ import annotations

from collections import deque

import msgspec

from reknit.protocol.machine import Peer
from reknit.wire.outcomes import RangeOutcome

SubscriptionKey = tuple[Peer, int]
"""A connection and the number of a subscription on it; or a neighbour's name and 0."""


Told = dict[bytes, list[RangeOutcome]]
"""By source: outcomes of its events."""


class Promises:
    """The outcomes that one node will tell publishers, in the order of their records.

    >>> promises = Promises()
    >>> promises.add(7, {b"s": []})
    >>> promises.due(6), promises.due(7)
    ([], [{b's': []}])
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Told]] = deque()
        """With the number of the record that each rests on."""

    def add(self, number: int, told: Told) -> None:
        """Tell these outcomes when the record with this number is durable."""
        self.waiting.append((number, told))

    def forget(self, source: bytes) -> None:
        """The publisher of a source comes back, and is told all outcomes from the ledger."""
        for _, told in self.waiting:
            told.pop(source, None)

    def is_due(self, durable_number: int) -> bool:
        """Whether there are outcomes to tell."""
        return bool(self.waiting) and self.waiting[0][0] <= durable_number

    def due(self, durable_number: int) -> list[Told]:
        """The outcomes to tell now."""
        found: list[Told] = []
        while self.is_due(durable_number):
            found.append(self.waiting.popleft()[1])
        return found


class Confirmation(msgspec.Struct):
    """A settlement that is confirmed when its record is durable, and the neighbours have recorded what they were
    returned."""

    settled: int
    number: int
    """Of the last record."""
    upstream: dict[str, int]
    """By neighbour: the number of the last outcome that it was returned."""


class Confirmations:
    """The settlements of one node's subscribers and neighbours that are not confirmed yet, in order for each of them.

    >>> waiting = Confirmations()
    >>> waiting.up("b")
    >>> waiting.add((1, 1), settled=3, number=7, upstream={"b": 2})
    >>> waiting.due(7)
    {}
    >>> waiting.recorded("b", 2)
    >>> waiting.due(7)
    {(1, 1): 3}
    """

    def __init__(self) -> None:
        self.waiting: dict[SubscriptionKey, deque[Confirmation]] = {}
        self._recorded: dict[str, int] = {}
        """By neighbour that is linked and confirms: how far it has recorded what it was returned."""
        self._checked = -1
        """`due` found nothing more with everything up to this number durable."""

    def confirms(self, name: str) -> bool:
        """Whether a neighbour is linked, and says what it has recorded."""
        return name in self._recorded

    def up(self, name: str) -> None:
        """A neighbour is linked, and says what it has recorded. Its numbers begin anew."""
        self._recorded[name] = 0

    def down(self, name: str) -> None:
        """A neighbour is gone: on its side, what it has not recorded is in doubt."""
        if self._recorded.pop(name, None) is not None:
            self._checked = -1
            for several in self.waiting.values():
                for one in several:
                    one.upstream.pop(name, None)

    def recorded(self, name: str, number: int) -> None:
        """A neighbour has recorded everything up to this number."""
        if name in self._recorded:
            self._checked = -1
            self._recorded[name] = max(self._recorded[name], number)

    def add(self, key: SubscriptionKey, settled: int, number: int, upstream: dict[str, int]) -> None:
        """Confirm a settlement when this record is durable, and the neighbours have recorded these outcomes."""
        self._checked = -1
        confirmation = Confirmation(settled, number, dict(upstream))
        self.waiting.setdefault(key, deque()).append(confirmation)

    def is_due(self, durable_number: int) -> bool:
        """Whether `due` may find something."""
        return bool(self.waiting) and self._checked < durable_number

    def due(self, durable_number: int) -> dict[SubscriptionKey, int]:
        """The settlements to confirm now: the last of each subscription. It confirms everything before it."""
        found: dict[SubscriptionKey, int] = {}
        for key, several in list(self.waiting.items()):
            while several and self._is_kept(several[0], durable_number):
                found[key] = several.popleft().settled
            if not several:
                del self.waiting[key]
        self._checked = durable_number
        return found

    def _is_kept(self, one: Confirmation, durable_number: int) -> bool:
        recorded = self._recorded
        return one.number <= durable_number and all(
            recorded.get(name, number) >= number for name, number in one.upstream.items()
        )

    def forget(self, peer: Peer) -> None:
        """A connection is gone."""
        self.waiting = {key: several for key, several in self.waiting.items() if key[0] != peer}

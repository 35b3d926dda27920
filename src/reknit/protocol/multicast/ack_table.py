"""The acks of all members for one sender's events, and the lowest of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


class AckTable(Generic[M]):
    """The highest ack of every member. `minimum` is the lowest of them: everyone has that much. It never falls.

    >>> acks = AckTable({"A": 0, "B": 0, "C": 0})
    >>> acks.ack("A", 10), acks.ack("B", 7), acks.ack("C", 5), acks.minimum
    (False, False, True, 5)
    >>> acks.ack("C", 4), acks.ack("D", 9), acks.leave("C"), acks.minimum
    (False, False, True, 7)
    """

    def __init__(self, acks: dict[M, int]) -> None:
        self._acks = dict(acks)
        self.minimum = min(acks.values(), default=0)

    def __contains__(self, member: object) -> bool:
        return member in self._acks

    def __getitem__(self, member: M) -> int:
        return self._acks[member]

    @property
    def members(self) -> list[M]:
        return list(self._acks)

    def ack(self, member: M, seq: int) -> bool:
        """Note an ack. A lower one, or one from a non-member, changes nothing. True if the minimum rose."""
        old = self._acks.get(member)
        if old is None or seq <= old:
            return False
        self._acks[member] = seq
        return old == self.minimum and self._settle()

    def join(self, member: M, seq: int) -> None:
        """Add a member that starts after seq, which must not be below the minimum."""
        assert seq >= self.minimum, "a joiner can't start at events that were purged"
        self._acks.setdefault(member, seq)

    def leave(self, member: M) -> bool:
        """Remove a member. True if the minimum rose because nobody waits for it any more."""
        return self._acks.pop(member, None) is not None and self._settle()

    def lowest(self) -> list[M]:
        """The members that everyone else waits for."""
        return [member for member, seq in self._acks.items() if seq == self.minimum]

    def all_have(self, seq: int) -> bool:
        return all(ack >= seq for ack in self._acks.values())

    def _settle(self) -> bool:
        low, self.minimum = self.minimum, max(self.minimum, min(self._acks.values(), default=self.minimum))
        return self.minimum > low

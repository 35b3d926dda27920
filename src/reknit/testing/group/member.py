"""One program of a simulated group: its machine, and what it sent, got and was told."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from reknit.protocol.multicast.member import GroupMember
from reknit.seqset import SeqSet
from reknit.view import View
from reknit.wire.bundle import Bundler


@dataclass
class SimMember:
    """One simulated program."""

    name: str
    machine: GroupMember
    bundler: Bundler
    is_alive: bool = True
    is_leaving: bool = False
    sent: list[bytes] = field(default_factory=list)
    got: dict[bytes, list[tuple[int, list[bytes] | None, int]]] = field(default_factory=dict)
    """By source: first seq, payloads (None: lost) and count."""
    dead: dict[bytes, SeqSet] = field(default_factory=lambda: defaultdict(SeqSet))
    """By slow member: the events of this one that it did not take."""
    open_tickets: set[int] = field(default_factory=set)
    lost: int = 0
    timer: float = float("inf")
    stuck_until: float = 0.0
    heard: dict[bytes, int] = field(default_factory=dict)
    """The last seq of each source of which anything came while it was a member."""
    views: list[View] = field(default_factory=list)
    why_left: str | None = None
    views_at_leave: dict[bytes, int] = field(default_factory=dict)
    """How many views each other member had when this one began to leave."""

    @property
    def id(self) -> bytes:
        return self.machine.me.id

    def has_had_always(self, member: bytes) -> bool:
        """True if this member was in every view from the first on that it was in."""
        there = [member in view for view in self.views]
        return all(there[there.index(True) :]) if any(there) else False

    def has_taken_back(self, leaver: SimMember) -> bool:
        """True if it had a view with a member again that had left, and had been gone."""
        there = [leaver.id in view for view in self.views[leaver.views_at_leave.get(self.id, 0) :]]
        return any(now and not before for before, now in pairwise(there))

    def has_had_back(self, member: bytes) -> bool:
        """True if this member was removed from a view and came back."""
        there = [member in view for view in self.views]
        return any(there[at] and not there[at - 1] and any(there[:at]) for at in range(1, len(there)))

    def seqs(self, source: bytes, *, lost: bool) -> SeqSet:
        """The events of a source that were delivered or lost."""
        items = self.got.get(source, [])
        wanted = [item for item in items if (item[1] is None) == lost]
        return SeqSet.from_ranges((first, first + count) for first, _, count in wanted)

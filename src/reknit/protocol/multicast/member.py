"""One member of a group: its multicast and its membership as one machine. A driver or a simulator runs it.

    MembershipMessage          -> membership; a new view is installed in multicast before its effects are taken
    GroupPiece, MulticastMessage   -> multicast; its sender counts as heard by the membership
    EvictSlow (from multicast) -> membership evicts the slow member

With `GivenMembership`, membership messages are ignored: another source knows the members.
"""

from __future__ import annotations

from random import Random
from typing import Final

from reknit.protocol.machine import Machine, Peer
from reknit.protocol.multicast.effects import EvictSlow, GroupEffect, LeftGroup, ViewInstalled
from reknit.protocol.multicast.membership import Membership
from reknit.protocol.multicast.multicast import Multicast
from reknit.protocol.multicast.sender import NEVER
from reknit.protocol.multicast.settings import GroupSettings
from reknit.view import Member, View
from reknit.wire.groups import AnyGroupMessage, GroupPiece, MembershipMessage

AT_ONCE: Final = float("-inf")


class GivenMembership:
    """The members are known from elsewhere, such as a node's links, and are set by `give`.

    >>> given = GivenMembership(Member(b"a"))
    >>> given.give([Member(b"a"), Member(b"b")])
    >>> given.view.ids
    (b'a', b'b')
    """

    def __init__(self, me: Member) -> None:
        self.me = me
        self.view: View | None = None
        self._effects: list[GroupEffect] = []

    def give(self, members: list[Member]) -> None:
        """The members from now on, ourselves among them."""
        counter = 1 if self.view is None else self.view.counter + 1
        self.view = View(counter, b"", tuple(members))
        self._effects.append(ViewInstalled(self.view))

    def leave(self) -> None:
        """Leave at once. The others learn it from the same source as we do."""
        self._effects.append(LeftGroup(""))

    def take_effects(self) -> list[GroupEffect]:
        effects, self._effects = self._effects, []
        return effects


class GroupMember:
    """Membership and multicast as one machine."""

    def __init__(
        self,
        topic: str,
        settings: GroupSettings,
        membership: Membership | GivenMembership,
        rng: Random,
        wall_s: float = 0.0,
    ) -> None:
        self.membership = membership
        self.multicast = Multicast(membership.me.id, topic, settings, rng, wall_s)
        self._membership_at = AT_ONCE
        """When the membership is due."""
        self._now = 0.0
        """The time of the latest input."""

    @property
    def me(self) -> Member:
        return self.membership.me

    @property
    def view(self) -> View | None:
        return self.multicast.view

    def leave(self, now: float) -> None:
        """Fail all waiting sends, and say goodbye."""
        self._now = now
        self.multicast.close(now)
        if isinstance(self.membership, Membership):
            self.membership.leave(now)
            self._membership_at = now
        else:
            self.membership.leave()

    # -- the contract

    def receive(self, message: GroupPiece | AnyGroupMessage, peer: Peer, now: float) -> None:
        """A message from a peer, which need not be a member."""
        assert isinstance(peer, bytes), "members are known by their ids"
        self._now = now
        if type(message) is not GroupPiece and isinstance(message, MembershipMessage):
            if isinstance(self.membership, Membership):
                self.membership.receive(message, peer, now)
                self._membership_at = now
            return
        if isinstance(self.membership, Membership):
            self.membership.heard(peer, now)
        self.multicast.receive(message, peer, now)

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        self._now = now
        if self._membership_at <= now and isinstance(self.membership, Membership):
            self.membership.tick(now)
            deadline = self.membership.next_deadline()
            self._membership_at = NEVER if deadline is None else deadline
        self.multicast.tick(now)

    def next_deadline(self) -> float | None:
        deadline = self.multicast.next_deadline()
        if isinstance(self.membership, GivenMembership):
            return deadline
        return self._membership_at if deadline is None else min(deadline, self._membership_at)

    def take_effects(self) -> list[GroupEffect]:
        """Return the effects. New views are installed on the way, and slow members reported to the membership."""
        out: list[GroupEffect] = []
        for effect in self.membership.take_effects():
            if isinstance(effect, ViewInstalled):
                self.multicast.install(effect.view, self._now)
            out.append(effect)
        for done in self.multicast.take_effects():
            if isinstance(done, EvictSlow) and isinstance(self.membership, Membership):
                self.membership.evict(done.member, done.why, self._now)
                self._membership_at = self._now
                out += self.membership.take_effects()
            out.append(done)
        return out


_: type[Machine[GroupPiece | AnyGroupMessage, GroupEffect]] = GroupMember

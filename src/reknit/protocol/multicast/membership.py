"""Membership of the group. The members agree on it among themselves.

Rank is the order of the view: older members come first. The first member that is neither suspected nor leaving
coordinates: it admits members that say `GroupHello`, removes members that left or were silent for too long, and
sends the new view until all have it. Views are in one total order (counter, coordinator), and the later one wins, so
two views that were made at the same time do no harm. Coordinators that hear of each other merge their groups.

    JOINING ── a view with us, or nobody else found ──> MEMBER
    MEMBER  ── leave ──> LEAVING ── a view without us, or a timeout ──> OUT
    MEMBER  ── evicted, or the only member leaves ──> OUT
    JOINING ── leave, or evicted ──> OUT

Messages are ignored when we are OUT, and when they come from ourselves. `leave` while LEAVING or OUT changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import Any, Final, assert_never

from reknit.protocol.machine import Machine, Peer
from reknit.protocol.multicast.coordination import NEVER, Coordination
from reknit.protocol.multicast.discovery import Discovery
from reknit.protocol.multicast.effects import (
    LeftGroup,
    MembershipEffect,
    SendToAddress,
    SendToGroup,
    ViewInstalled,
)
from reknit.protocol.multicast.goodbye import Goodbye
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.suspicion import Suspicion
from reknit.view import Member, View
from reknit.wire.groups import (
    AnyGroupMessage,
    GroupAskView,
    GroupBeat,
    GroupEvict,
    GroupEvicted,
    GroupFound,
    GroupHello,
    GroupInstall,
    GroupLeave,
    GroupSuspect,
    MembershipMessage,
)

GONE_MAX = 1024
"""How many incarnations that left or were evicted are remembered, and not admitted again."""


class MembershipState(Enum):
    """The state of one member."""

    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    OUT = "out"


TRANSITIONS: Final[dict[MembershipState, frozenset[MembershipState]]] = {
    MembershipState.JOINING: frozenset((MembershipState.MEMBER, MembershipState.OUT)),
    MembershipState.MEMBER: frozenset((MembershipState.LEAVING, MembershipState.OUT)),
    MembershipState.LEAVING: frozenset((MembershipState.OUT,)),
    MembershipState.OUT: frozenset(),
}


class Membership:
    """One member's machine. `seeds` are addresses where others may be found if multicast does not reach them."""

    def __init__(
        self, me: Member, settings: GroupSettings, rng: Random, seeds: Sequence[str] = (), now: float = 0.0
    ) -> None:
        self.me = me
        self.state = MembershipState.JOINING
        self.view: View | None = None
        self._settings = settings
        self._seeds = tuple(seed for seed in seeds if seed != me.address)
        self._discovery = Discovery(me, settings, rng, now)
        self._suspicion = Suspicion(settings)
        self._coordination = Coordination(me, settings)
        self._goodbye = Goodbye(settings)
        self._leaving: set[bytes] = set()
        self._left: dict[bytes, None] = {}
        """Members that said that they leave. Something of them may come late: it would bring them back."""
        self._known: dict[bytes, None] = {}
        """All that were in a view with us: only they may evict us."""
        self._evicted: dict[bytes, str] = {}
        """Members that were evicted, and why."""
        self._evicted_for = ""
        """Why we have to leave, if we did not ask to."""
        self._beat_at = NEVER
        self._effects: list[MembershipEffect] = []

    def _become(self, state: MembershipState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} can't become {state}"
        self.state = state

    # -- what the application wants

    def leave(self, now: float) -> None:
        """Say goodbye until the view is without us, or for `leave_s`."""
        match self.state:
            case MembershipState.MEMBER:
                if self.view is not None and self.view.ids == (self.me.id,):
                    self._get_out("")
                    return
                self._become(MembershipState.LEAVING)
                self._leaving.add(self.me.id)
                self._goodbye.start(now)
            case MembershipState.JOINING:
                self._get_out("left before it had joined")
            case MembershipState.LEAVING | MembershipState.OUT:
                pass
            case _:
                assert_never(self.state)

    def evict(self, member: bytes, why: str, now: float) -> None:
        """A member holds up all others, and the policy for slow members is to evict it."""
        if self.state is not MembershipState.MEMBER:
            return  # a member that leaves evicts nobody
        if self.coordinator == self.me.id:
            self._evict(member, why, now)
        elif self.coordinator is not None:
            self._effects.append(SendToGroup(self.coordinator, GroupEvict(member, why)))

    @property
    def coordinator(self) -> bytes | None:
        """The first member by rank that is there, as far as we know."""
        if self.view is None:
            return None
        present = (m for m in self.view.ids if m not in self._suspicion and m not in self._leaving)
        return next(present, self.me.id)

    @property
    def is_coordinator(self) -> bool:
        return self.state is MembershipState.MEMBER and self.coordinator == self.me.id

    # -- the contract

    def heard(self, peer: bytes, now: float) -> None:
        """Any message came from this peer."""
        self._suspicion.heard(peer, now)

    def receive(self, message: MembershipMessage, peer: Peer, now: float) -> None:
        """A message from a peer, which need not be a member."""
        assert isinstance(peer, bytes), "members are known by their ids"
        if self.state is MembershipState.OUT or peer == self.me.id:
            return
        self.heard(peer, now)
        match message:
            case GroupHello():
                self._hello(message.member, peer, now)
            case GroupFound():
                self._found(message, peer, now)
            case GroupBeat():
                self._beat(message, peer, now)
            case GroupInstall():
                self._other_view(message.view, peer, now)
            case GroupAskView():
                # A leaver that gave its view after it was removed would be merged in again, and lose what came between.
                if self.view is not None and self.state is MembershipState.MEMBER:
                    self._effects.append(SendToGroup(peer, GroupInstall(self.view)))
            case GroupLeave():
                self._leaves(peer, now)
            case GroupSuspect():
                if self.me.id in message.members and self.view is not None:
                    self._say(self._own_beat())
            case GroupEvict():
                self._evict_requested(message, peer, now)
            case GroupEvicted():
                # If two members evicted each other while they were apart, the one with the lower id stays.
                is_stranger = self.view is not None and peer not in self._known
                if not is_stranger and (peer not in self._evicted or self.me.id > peer):
                    self._get_out(message.why)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        if self.state is MembershipState.JOINING:
            self._continue_joining(now)
        elif self.state is MembershipState.LEAVING:
            self._continue_leaving(now)
        if self.state in (MembershipState.MEMBER, MembershipState.LEAVING):
            self._watch(now)

    def next_deadline(self) -> float | None:
        if self.state is MembershipState.OUT:
            return None
        times = [self._beat_at, self._coordination.next_deadline, self._goodbye.next_deadline]
        if self.state is MembershipState.JOINING:
            times.append(self._discovery.next_deadline)
        first = min(times)
        return None if first == NEVER else first

    def take_effects(self) -> list[MembershipEffect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- joining

    def _say(self, message: AnyGroupMessage) -> None:
        """To everyone in reach, by multicast and at the seeds."""
        self._effects.append(SendToGroup(None, message))
        self._effects += [SendToAddress(seed, message) for seed in self._seeds]

    def _continue_joining(self, now: float) -> None:
        if self._discovery.is_hello_due(now):
            self._say(GroupHello(self.me))
            if (known := self._discovery.coordinator) is not None:
                self._effects.append(SendToAddress(known.address, GroupHello(self.me)))
        if self._discovery.is_founding_due(now):
            self._install(View(1, self.me.id, (self.me,)), now)

    def _hello(self, member: Member, peer: bytes, now: float) -> None:
        if member.id != peer or peer in self._left:
            return
        if member.id in self._evicted:
            self._effects.append(SendToGroup(peer, GroupEvicted(self._evicted[peer])))
        elif self.view is None:
            self._discovery.met(member.id)
        elif self.state is MembershipState.LEAVING:
            pass  # as with `GroupAskView`; it is repeated until others answer
        elif member.id in self.view:
            self._effects.append(SendToGroup(peer, GroupInstall(self.view)))
        elif self.is_coordinator:
            self._coordination.join(member, now)
        elif (coordinator := self._member(self.coordinator)) is not None:
            self._effects.append(SendToGroup(peer, GroupFound(coordinator)))

    def _found(self, message: GroupFound, peer: bytes, now: float) -> None:
        if self.view is not None and message.coordinator.id not in self.view:
            self._suspicion.strays(peer, now)
        if self.state is MembershipState.JOINING:
            if self._discovery.referred(message.coordinator, now):
                self._effects.append(SendToAddress(message.coordinator.address, GroupHello(self.me)))
        elif self.view is not None and self.is_coordinator and message.coordinator.id not in self.view:
            self._effects.append(SendToAddress(message.coordinator.address, self._own_beat()))

    def _member(self, member: bytes | None) -> Member | None:
        return next((m for m in self.view.members if m.id == member), None) if self.view else None

    # -- views

    def _lead(self, view: View, now: float) -> None:
        """Install a view of our own making, and send it to all, including those that are not in it any more."""
        told = set(self.view.ids if self.view is not None else ()) | set(view.ids)
        self._install(view, now)
        self._coordination.lead(view, now)
        self._effects.append(SendToGroup(None, GroupInstall(view)))
        self._effects += [SendToGroup(member, GroupInstall(view)) for member in sorted(told - {self.me.id})]

    def _install(self, view: View, now: float) -> None:
        if self.state is MembershipState.JOINING:
            self._become(MembershipState.MEMBER)
            self._beat_at = now
        self.view = view
        for member in view.ids:
            self._known.pop(member, None)  # the latest are remembered
            self._known[member] = None
            _limit(self._known)
        self._leaving &= set(view.ids)
        self._suspicion.keep([member for member in view.ids if member != self.me.id], now)
        self._coordination.installed()
        self._effects.append(ViewInstalled(view))

    def _other_view(self, view: View, peer: bytes, now: float) -> None:
        """A peer sent a view. The later one wins. Another group's view is merged with ours if we asked for it."""
        if peer not in view and peer != view.coordinator:
            return  # a stranger repeats what it overheard
        if self.me.id in view and (self.view is None or view.key > self.view.key):
            self._install(view, now)
            self._effects.append(SendToGroup(view.coordinator, self._own_beat()))
        elif self._coordination.take_merge(peer, now) and self.is_coordinator:
            assert self.view is not None
            gone = self._evicted.keys() | self._left.keys()
            self._lead(self._coordination.merged_view(self.view, view, gone), now)
        elif self.view is None or peer != view.coordinator:
            return
        elif self.me.id in view:
            self._effects.append(SendToGroup(peer, self._own_beat()))
        elif peer in self.view and view.key > self.view.key:
            self._left_out(view, now)

    def _left_out(self, view: View, now: float) -> None:
        """A later view without us: because we are leaving, or because the others did not hear us for long."""
        assert self.view is not None
        if self.state is MembershipState.LEAVING:
            self._get_out("")
        elif not self.is_coordinator:
            # A group of our own for now; then the two merge. Its view is later than any that we made.
            counter = max(view.counter, self.view.counter + 1)
            self._lead(View(counter, self.me.id, (self.me,)), now)

    # -- heartbeats

    def _own_beat(self) -> GroupBeat:
        assert self.view is not None
        return GroupBeat(*self.view.key, self.is_coordinator, self.me.address if self.is_coordinator else "")

    def _beat(self, message: GroupBeat, peer: bytes, now: float) -> None:
        if self.view is None:
            self._discovery.heard_of_a_group(now)
            return
        if (message.counter, message.coordinator) == self.view.key:
            self._suspicion.follows(peer)
        else:
            self._suspicion.strays(peer, now)
        if self.is_coordinator:
            self._coordinate(message, peer, self.view, now)
        else:
            self._refer(message, peer, self.view)

    def _coordinate(self, message: GroupBeat, peer: bytes, view: View, now: float) -> None:
        """As coordinator: bring a member with another view into ours, or merge with another group."""
        key = (message.counter, message.coordinator)
        if peer in self._evicted:
            self._effects.append(SendToGroup(peer, GroupEvicted(self._evicted[peer])))
        elif key == view.key:
            self._coordination.confirm(peer)
        elif peer in view and key < view.key and message.coordinator != peer:
            self._effects.append(SendToGroup(peer, GroupInstall(view)))
        elif _can_speak_for_all(message, peer) and self.me.id > peer:
            self._effects.append(SendToGroup(peer, self._own_beat()))
        elif _can_speak_for_all(message, peer) or (peer not in view and message.coordinator in view):
            # Another coordinator, and we lead the merge because our id is lower; or a member that was left behind
            # by a coordinator that is with us now. Ask for its view.
            self._coordination.ask_merge(peer, now)
            self._effects.append(SendToGroup(peer, GroupAskView()))

    def _refer(self, message: GroupBeat, peer: bytes, view: View) -> None:
        """Another group's coordinator, where multicast does not reach ours: tell it our coordinator."""
        ours = self._member(self.coordinator)
        if _can_speak_for_all(message, peer) and peer not in view and ours is not None:
            self._effects.append(SendToGroup(peer, GroupFound(ours)))

    def _watch(self, now: float) -> None:
        assert self.view is not None
        if self._beat_at <= now:
            self._beat_at = now + self._settings.beat_s
            beat = self._own_beat()
            self._effects.append(SendToGroup(None, beat))
            if self.is_coordinator:
                self._effects += [SendToAddress(seed, beat) for seed in self._seeds]
            self._suspect(now)
        if not self.is_coordinator:
            self._coordination.stand_down()
            return
        for member in self._coordination.due_repeats(now):
            self._effects.append(SendToGroup(member, GroupInstall(self.view)))
        if self._coordination.is_change_due(now):
            leaving = self._leaving | self._suspicion.confirmed(now)
            view = self._coordination.next_view(self.view, leaving, self._evicted)
            if view is not None:
                self._lead(view, now)

    def _suspect(self, now: float) -> None:
        """Suspect members that were silent or astray for too long, and ask them to speak up. Remove the confirmed."""
        silent = self._suspicion.check(now)
        if silent:
            self._effects.append(SendToGroup(None, GroupSuspect(silent)))
        if self.is_coordinator and (self._suspicion.confirmed(now) or self._leaving):
            self._coordination.change_soon(now)

    # -- leaving and eviction

    def _leaves(self, peer: bytes, now: float) -> None:
        self._left[peer] = None
        _limit(self._left)
        if self.view is not None and peer in self.view:
            self._leaving.add(peer)
            if self.is_coordinator:
                self._coordination.change_soon(now)
        elif self.view is not None:
            self._effects.append(SendToGroup(peer, GroupInstall(self.view)))
        self._coordination.cancel_join(peer)

    def _evict_requested(self, message: GroupEvict, peer: bytes, now: float) -> None:
        if self.is_coordinator and self.view is not None and peer in self.view and peer not in self._evicted:
            self._evict(message.member, message.why, now)

    def _evict(self, member: bytes, why: str, now: float) -> None:
        if member == self.me.id:
            self._evicted_for = why
            self.leave(now)  # the next by rank makes the view without us
            return
        self._evicted[member] = why
        _limit(self._evicted)
        self._effects.append(SendToGroup(member, GroupEvicted(why)))
        self._coordination.change_soon(now)

    def _continue_leaving(self, now: float) -> None:
        if self._goodbye.is_over(now):
            self._get_out("")
        elif self._goodbye.is_due(now):
            self._say(GroupLeave())

    def _get_out(self, why: str) -> None:
        self._become(MembershipState.OUT)
        self._effects.append(LeftGroup(why or self._evicted_for))


def _limit(remembered: dict[bytes, Any]) -> None:
    if len(remembered) > GONE_MAX:
        del remembered[next(iter(remembered))]


def _can_speak_for_all(beat: GroupBeat, peer: bytes) -> bool:
    """Whether a peer coordinates its view, or made it. Rank decides on the coordinator, so these may be two members."""
    return beat.is_coordinating or beat.coordinator == peer


_: type[Machine[MembershipMessage, MembershipEffect]] = Membership

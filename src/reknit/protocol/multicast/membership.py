"""Who is in the group, found out by the members themselves.

Rank is the order of the view: who was there first comes first. The first member that is neither suspected
nor leaving coordinates: it lets in who says `GroupHello`, puts out who left or was silent for too long, and says
the new view to all until all have it. Views are in one total order (counter, coordinator), and the later one
wins, so that two that were made at the same time do no harm. Coordinators that hear of each other merge.

    JOINING ── a view with us, or nobody else found ──> MEMBER
    MEMBER  ── leave ──> LEAVING ── a view without us, or time ran out ──> OUT
    MEMBER  ── evicted ──> OUT
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import assert_never

from reknit.protocol.multicast.discovery import Discovery
from reknit.protocol.multicast.effects import (
    LeftGroup,
    MembershipEffect,
    SendMessage,
    SendToAddress,
    ViewInstalled,
)
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

EVICTED_MAX = 1024
"""So many evicted incarnations are remembered, and not let in again."""
NEVER = float("inf")


class MembershipState(Enum):
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    OUT = "out"


TRANSITIONS = {
    MembershipState.JOINING: {MembershipState.MEMBER, MembershipState.OUT},
    MembershipState.MEMBER: {MembershipState.LEAVING, MembershipState.OUT},
    MembershipState.LEAVING: {MembershipState.OUT},
    MembershipState.OUT: set[MembershipState](),
}


class Membership:
    """One member's machine. `seeds` are addresses where others may be found when multicast reaches nobody."""

    def __init__(
        self, me: Member, settings: GroupSettings, rng: Random, seeds: Sequence[str] = (), now: float = 0.0
    ) -> None:
        self.me = me
        self.state = MembershipState.JOINING
        self.view: View | None = None
        self._settings = settings
        self._seeds = tuple(seed for seed in seeds if seed != me.address)
        self._effects: list[MembershipEffect] = []
        self._suspicion = Suspicion(settings)
        self._leaving: set[bytes] = set()
        self._evicted: dict[bytes, str] = {}
        self._why_out = ""
        self._joiners: dict[bytes, Member] = {}
        self._behind: set[bytes] = set()
        self._merging: dict[bytes, float] = {}
        self._discovery = Discovery(me, settings, rng, now)
        self._goodbye_at = NEVER
        self._beat_at = NEVER
        self._change_at = NEVER
        self._again_at = NEVER
        self._out_at = NEVER

    def _become(self, state: MembershipState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} can't become {state}"
        self.state = state

    # -- what the member wants

    def leave(self, now: float) -> None:
        """Say goodbye until the view is without us, or for `leave_s`."""
        if self.state is MembershipState.MEMBER and self.view is not None and self.view.ids == (self.me.id,):
            self._out("")
        elif self.state is MembershipState.MEMBER:
            self._become(MembershipState.LEAVING)
            self._leaving.add(self.me.id)
            self._goodbye_at = now
            self._out_at = now + self._settings.leave_s
        elif self.state is MembershipState.JOINING:
            self._out("left before it had joined")

    def evict(self, member: bytes, why: str, now: float) -> None:
        """A member holds everyone up and has to go, by the policy for slow members."""
        if self.state is not MembershipState.MEMBER:
            return  # who goes itself puts nobody out
        if self.coordinator == self.me.id:
            self._put_out(member, why, now)
        elif self.coordinator is not None:
            self._effects.append(SendMessage(self.coordinator, GroupEvict(member, why)))

    @property
    def coordinator(self) -> bytes | None:
        """The first by rank that is there, as far as we know."""
        if self.view is None:
            return None
        present = (m for m in self.view.ids if m not in self._suspicion and m not in self._leaving)
        return next(present, self.me.id)

    @property
    def is_coordinator(self) -> bool:
        return self.state is MembershipState.MEMBER and self.coordinator == self.me.id

    # -- the contract

    def heard(self, peer: bytes, now: float) -> None:
        """Anything at all came from this peer."""
        self._suspicion.heard(peer, now)

    def receive(self, message: MembershipMessage, peer: bytes, now: float) -> None:
        """Something came from a peer, which need not be a member."""
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
                self._view(message.view, peer, now)
            case GroupAskView():
                if self.view is not None:
                    self._effects.append(SendMessage(peer, GroupInstall(self.view)))
            case GroupLeave():
                self._leaves(peer, now)
            case GroupSuspect():
                self._suspects(message, now)
            case GroupEvict():
                if (
                    self.is_coordinator
                    and self.view is not None
                    and peer in self.view
                    and peer not in self._evicted
                ):
                    self._put_out(message.member, message.why, now)
            case GroupEvicted():
                # Of two that put out each other while they were divided, the one with the lower id stays.
                if peer not in self._evicted or self.me.id > peer:
                    self._out(message.why)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Whatever is due."""
        if self.state is MembershipState.JOINING:
            self._join_on(now)
        elif self.state is MembershipState.LEAVING:
            self._leave_on(now)
        if self.state in (MembershipState.MEMBER, MembershipState.LEAVING):
            self._watch(now)

    def next_deadline(self) -> float | None:
        if self.state is MembershipState.OUT:
            return None
        times = [self._beat_at, self._change_at, self._again_at, self._out_at, self._goodbye_at]
        if self.state is MembershipState.JOINING:
            times.append(self._discovery.next_deadline)
        first = min(times)
        return None if first == NEVER else first

    def take_effects(self) -> list[MembershipEffect]:
        effects, self._effects = self._effects, []
        return effects

    # -- joining

    def _say(self, message: AnyGroupMessage) -> None:
        """To everyone in reach, whether multicast reaches them or not."""
        self._effects.append(SendMessage(None, message))
        self._effects += [SendToAddress(seed, message) for seed in self._seeds]

    def _join_on(self, now: float) -> None:
        if self._discovery.is_hello_due(now):
            self._say(GroupHello(self.me))
            if (known := self._discovery.coordinator) is not None:
                self._effects.append(SendToAddress(known.address, GroupHello(self.me)))
        if self._discovery.is_founding_due(now):
            self._install(View(1, self.me.id, (self.me,)), now)

    def _hello(self, member: Member, peer: bytes, now: float) -> None:
        if member.id != peer:
            return
        if member.id in self._evicted:
            self._effects.append(SendMessage(peer, GroupEvicted(self._evicted[peer])))
        elif self.view is None:
            self._discovery.met(member.id)
        elif member.id in self.view:
            self._effects.append(SendMessage(peer, GroupInstall(self.view)))
        elif self.is_coordinator:
            if len(self._joiners) < self._settings.members_max:
                self._joiners[member.id] = member
            self._change_soon(now)
        elif (coordinator := self._member(self.coordinator)) is not None:
            self._effects.append(SendMessage(peer, GroupFound(coordinator)))

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

    def _change_soon(self, now: float) -> None:
        self._change_at = min(self._change_at, now + self._settings.gather_s)

    def _change(self, now: float) -> None:
        """As coordinator: make the view that the joiners, leavers and suspects ask for."""
        self._change_at = NEVER
        assert self.view is not None
        staying = self.view.without(self._leaving | self._suspicion.confirmed(now) | set(self._evicted))
        joining = [m for m in self._joiners.values() if m.id not in self.view and m.id not in self._evicted]
        members = (*staying, *joining)[: self._settings.members_max]
        self._joiners.clear()
        if members != self.view.members:
            self._lead(View(self.view.counter + 1, self.me.id, members), now)

    def _lead(self, view: View, now: float) -> None:
        """Install a view of our own making and say it to all, those who are out of it too."""
        told = set(self.view.ids if self.view is not None else ()) | set(view.ids)
        self._install(view, now)
        self._behind = set(view.ids) - {self.me.id}
        self._again_at = now + self._settings.repeat_s
        self._effects.append(SendMessage(None, GroupInstall(view)))
        self._effects += [SendMessage(member, GroupInstall(view)) for member in sorted(told - {self.me.id})]

    def _install(self, view: View, now: float) -> None:
        if self.state is MembershipState.JOINING:
            self._become(MembershipState.MEMBER)
            self._beat_at = now
        self.view = view
        self._leaving &= set(view.ids)
        self._suspicion.keep([member for member in view.ids if member != self.me.id], now)
        self._behind.clear()
        self._merging.clear()
        self._again_at = NEVER
        self._effects.append(ViewInstalled(view))

    def _view(self, view: View, peer: bytes, now: float) -> None:
        """A view that someone says. The later one wins; another group's, if asked for, is merged."""
        if self.me.id in view and (self.view is None or view.key > self.view.key):
            self._install(view, now)
            self._effects.append(SendMessage(view.coordinator, self._own_beat()))
        elif self._merging.pop(peer, 0.0) > now and self.is_coordinator:
            self._merge(view, now)
        elif self.view is None or peer != view.coordinator:
            return
        elif self.me.id in view:
            self._effects.append(SendMessage(peer, self._own_beat()))
        elif peer in self.view and view.key > self.view.key:
            self._put_outside(view, now)

    def _put_outside(self, view: View, now: float) -> None:
        """A later view without us: as we wished, or because we were not heard of for long."""
        assert self.view is not None
        if self.state is MembershipState.LEAVING:
            self._out("")
        elif not self.is_coordinator:
            # A group of our own for now; then the two merge. Its view is later than any that we made.
            counter = max(view.counter, self.view.counter + 1)
            self._lead(View(counter, self.me.id, (self.me,)), now)

    def _merge(self, view: View, now: float) -> None:
        assert self.view is not None
        known = set(self.view.ids) | set(self._evicted)
        members = (*self.view.members, *(member for member in view.members if member.id not in known))
        counter = max(view.counter, self.view.counter) + 1
        self._lead(View(counter, self.me.id, members[: self._settings.members_max]), now)

    # -- who is there

    def _own_beat(self) -> GroupBeat:
        assert self.view is not None
        return GroupBeat(*self.view.key, self.is_coordinator)

    def _beat(self, message: GroupBeat, peer: bytes, now: float) -> None:
        if self.view is None:
            self._discovery.heard_of_a_group(now)
            return
        key = (message.counter, message.coordinator)
        if key == self.view.key:
            self._suspicion.follows(peer)
        else:
            self._suspicion.strays(peer, now)
        if not self.is_coordinator:
            self._refer(message, peer)
            return
        if peer in self._evicted:
            self._effects.append(SendMessage(peer, GroupEvicted(self._evicted[peer])))
        elif key == self.view.key:
            self._behind.discard(peer)
        elif peer in self.view and key < self.view.key and message.coordinator != peer:
            self._effects.append(SendMessage(peer, GroupInstall(self.view)))
        elif _can_speak_for_all(message, peer) and self.me.id > peer:
            self._effects.append(SendMessage(peer, self._own_beat()))
        elif _can_speak_for_all(message, peer) or (
            peer not in self.view and message.coordinator in self.view
        ):
            # Another coordinator, and we lead the merge because our id is lower; or one that was left behind
            # with a coordinator that is with us now. Ask who is there.
            self._merging[peer] = now + self._settings.beat_s
            self._effects.append(SendMessage(peer, GroupAskView()))

    def _refer(self, message: GroupBeat, peer: bytes) -> None:
        """Another group's coordinator, where multicast does not reach ours: tell it who that is."""
        assert self.view is not None
        ours = self._member(self.coordinator)
        if _can_speak_for_all(message, peer) and peer not in self.view and ours is not None:
            self._effects.append(SendMessage(peer, GroupFound(ours)))

    def _leaves(self, peer: bytes, now: float) -> None:
        if self.view is not None and peer in self.view:
            self._leaving.add(peer)
            if self.is_coordinator:
                self._change_soon(now)
        elif self.view is not None:
            self._effects.append(SendMessage(peer, GroupInstall(self.view)))
        self._joiners.pop(peer, None)

    def _suspects(self, message: GroupSuspect, now: float) -> None:
        if self.me.id in message.members and self.view is not None:
            self._say(self._own_beat())

    def _put_out(self, member: bytes, why: str, now: float) -> None:
        if member == self.me.id:
            self._why_out = why
            self.leave(now)  # the next by rank makes the view without us
            return
        self._evicted[member] = why
        if len(self._evicted) > EVICTED_MAX:
            del self._evicted[next(iter(self._evicted))]
        self._effects.append(SendMessage(member, GroupEvicted(why)))
        self._change_soon(now)

    def _leave_on(self, now: float) -> None:
        if self._out_at <= now:
            self._out("")
        elif self._goodbye_at <= now:
            self._goodbye_at = now + self._settings.hello_s
            self._say(GroupLeave())

    def _out(self, why: str) -> None:
        if self.state is not MembershipState.OUT:
            self._become(MembershipState.OUT)
            self._effects.append(LeftGroup(why or self._why_out))

    def _watch(self, now: float) -> None:
        assert self.view is not None
        if self._beat_at <= now:
            self._beat_at = now + self._settings.beat_s
            beat = self._own_beat()
            self._effects.append(SendMessage(None, beat))
            if self.is_coordinator:
                self._effects += [SendToAddress(seed, beat) for seed in self._seeds]
            self._suspect(now)
        if not self.is_coordinator:
            self._change_at = self._again_at = NEVER
            return
        if self._again_at <= now:
            self._again_at = now + self._settings.repeat_s if self._behind else NEVER
            self._effects += [SendMessage(member, GroupInstall(self.view)) for member in sorted(self._behind)]
        if self._change_at <= now:
            self._change(now)

    def _suspect(self, now: float) -> None:
        """Who was silent or astray for too long is suspected, and asked to speak up; who stays so goes."""
        silent = self._suspicion.check(now)
        if silent:
            self._effects.append(SendMessage(None, GroupSuspect(silent)))
        if self.is_coordinator and (self._suspicion.confirmed(now) or self._leaving):
            self._change_soon(now)


def _can_speak_for_all(beat: GroupBeat, peer: bytes) -> bool:
    """Whether a peer coordinates its view, or made it. Rank decides who coordinates, so these may be two."""
    return beat.is_coordinating or beat.coordinator == peer

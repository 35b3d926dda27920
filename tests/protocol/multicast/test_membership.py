"""Membership: discovery, views, suspicion, leaving and merging, on machines in virtual time."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from reknit.protocol.multicast.effects import LeftGroup, SendToAddress, SendToGroup, ViewInstalled
from reknit.protocol.multicast.member import GivenMembership
from reknit.protocol.multicast.membership import Membership, MembershipState
from reknit.protocol.multicast.settings import GroupSettings
from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.testing.network import Network
from reknit.view import Member, View
from reknit.wire.groups import (
    GroupAskView,
    GroupBeat,
    GroupEvict,
    GroupEvicted,
    GroupFound,
    GroupHello,
    GroupInstall,
    GroupSuspect,
)
from tests.protocol.multicast.network import Instant


def address_of(name: str) -> str:
    return f"10.0.0.{ord(name)}:1"


def name_at(address: str) -> str:
    return chr(int(address.removeprefix("10.0.0.").removesuffix(":1")))


class Lan:
    """Membership machines that hear each other, except those that are cut off."""

    def __init__(self, *, multicast: bool = True) -> None:
        self._clock = Clock()
        self._network = Network(self._clock, FaultPlan(seed=1), Random(1), datagram_faults=Instant())
        self.machines: dict[str, Membership] = {}
        self.left: dict[str, str] = {}
        self.multicast = multicast
        self.said: list[tuple[str, object]] = []

    def start(self, name: str, seeds: tuple[str, ...] = ()) -> Membership:
        me = Member(name.encode().ljust(16, b"\0"), name, address_of(name))
        settings = GroupSettings()
        self.machines[name] = Membership(me, settings, Random(name), seeds, self.now)
        return self.machines[name]

    @property
    def now(self) -> float:
        return self._clock.now

    def cut_off(self, names: str) -> None:
        """Separate some members from the others."""
        self._network.partition(set(names), set("abcdefgh") - set(names), one_way=False)

    def heal(self) -> None:
        self._network.heal()

    def run(self, seconds: float) -> None:
        stop = self.now + seconds
        while True:
            for machine in list(self.machines.values()):
                machine.tick(self.now)
            has_effects = sum(self.perform(name) for name in list(self.machines)) > 0
            self._clock.run(self.now)
            if has_effects:
                continue
            times = [at for machine in self.machines.values() if (at := machine.next_deadline()) is not None]
            if not times or min(times) > stop:
                self._clock.run(stop)
                return
            self._clock.run(max(self.now + 1e-6, min(times)))

    def perform(self, name: str) -> bool:
        effects = self.machines[name].take_effects()
        for effect in effects:
            match effect:
                case SendToGroup(None, message):
                    everyone = self.machines if self.multicast else self.in_view(name)
                    self.carry(name, list(everyone), message)
                case SendToGroup(peer, message):
                    assert peer is not None
                    self.carry(name, [peer.rstrip(b"\0").decode()], message)
                case SendToAddress(address, message):
                    self.carry(name, [name_at(address)], message)
                case LeftGroup(why):
                    self.left[name] = why
                case ViewInstalled():
                    pass
        return bool(effects)

    def in_view(self, name: str) -> list[str]:
        view = self.machines[name].view
        return [] if view is None else [member.name for member in view.members]

    def carry(self, name: str, others: list[str], message: object) -> None:
        self.said.append((name, message))
        for other in others:
            if other in self.machines and other != name:
                sender = self.machines[name].me.id
                self._network.send_datagram(name, other, partial(self.arrive, other, message, sender))

    def arrive(self, name: str, message: object, sender: bytes) -> None:
        self.machines[name].receive(message, sender, self.now)  # type: ignore[arg-type]

    def views(self) -> dict[str, str]:
        return {name: "".join(self.in_view(name)) for name in self.machines}


def lan_of(names: str) -> Lan:
    lan = Lan()
    for name in names:
        lan.start(name)
        lan.run(2.0)
    return lan


def test_one_alone_founds_a_group() -> None:
    lan = lan_of("a")
    assert lan.views() == {"a": "a"}
    assert lan.machines["a"].is_coordinator


def test_a_joiner_is_found_by_multicast_and_ranks_last() -> None:
    assert lan_of("bac").views() == dict.fromkeys("abc", "bac")


def test_members_that_start_together_end_in_one_group() -> None:
    lan = Lan()
    for name in "cab":
        lan.start(name)
    lan.run(4.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset("abc")}
    assert len(set(lan.views().values())) == 1


def test_a_joiner_finds_the_group_through_seeds_without_multicast() -> None:
    lan = Lan(multicast=False)
    lan.start("a")
    lan.run(1.0)
    for name in "bc":
        lan.start(name, seeds=(address_of("a"),))
    lan.run(3.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset("abc")}


def test_a_seed_that_does_not_coordinate_refers_to_the_coordinator() -> None:
    lan = Lan(multicast=False)
    lan.start("a")
    lan.run(1.0)
    lan.start("b", seeds=(address_of("a"),))
    lan.run(2.0)
    lan.start("c", seeds=(address_of("b"),))
    lan.run(2.0)
    assert lan.views() == dict.fromkeys("abc", "abc")


def test_a_storm_of_hellos_does_not_follow_from_one() -> None:
    lan = lan_of("abc")
    lan.said.clear()
    lan.start("d")
    lan.run(1.0)
    assert len([message for _, message in lan.said if isinstance(message, GroupHello)]) < 20


def test_a_silent_member_is_suspected_then_put_out() -> None:
    lan = lan_of("abc")
    del lan.machines["c"]
    lan.run(2.8)
    assert any(isinstance(message, GroupSuspect) for _, message in lan.said)
    assert lan.views() == dict.fromkeys("ab", "abc")
    lan.run(3.0)
    assert lan.views() == dict.fromkeys("ab", "ab")


def test_a_suspect_that_speaks_up_stays() -> None:
    lan = lan_of("abc")
    lan.cut_off("c")
    lan.run(2.8)
    counter = lan.machines["a"].view.counter if lan.machines["a"].view else 0
    lan.heal()
    lan.run(5.0)
    assert set(lan.views().values()) == {"abc"}
    assert lan.machines["a"].view is not None
    assert lan.machines["a"].view.counter == counter


def test_views_that_were_made_just_before_a_partition_ended_merge_too() -> None:
    """Each side evicted some of the other, and one made a view whose first member by rank does not know it."""
    lan = lan_of("abc")
    lan.cut_off("c")
    lan.run(3.2)
    lan.heal()
    lan.run(5.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset("abc")}


def test_the_next_by_rank_takes_over_from_a_coordinator_that_is_gone() -> None:
    lan = lan_of("abc")
    del lan.machines["a"]
    lan.run(6.0)
    assert lan.views() == dict.fromkeys("bc", "bc")
    assert [name for name, machine in lan.machines.items() if machine.is_coordinator] == ["b"]


def test_a_leaver_is_out_as_soon_as_the_view_is_without_it() -> None:
    lan = lan_of("abc")
    lan.machines["b"].leave(lan.now)
    lan.run(0.2)
    assert lan.left == {"b": ""}
    assert lan.machines["b"].state is MembershipState.OUT
    assert lan.views()["a"] == lan.views()["c"] == "ac"


def test_a_coordinator_that_leaves_hands_over() -> None:
    lan = lan_of("abc")
    lan.machines["a"].leave(lan.now)
    lan.run(0.2)
    assert lan.views()["b"] == lan.views()["c"] == "bc"


def test_a_leaver_that_nobody_answers_goes_anyway() -> None:
    lan = lan_of("ab")
    lan.cut_off("b")
    lan.machines["b"].leave(lan.now)
    lan.run(2.5)
    assert lan.left == {"b": ""}


def test_the_last_to_leave_waits_for_nobody() -> None:
    lan = lan_of("a")
    lan.machines["a"].leave(lan.now)
    assert lan.machines["a"].state is MembershipState.OUT


def test_a_divided_group_becomes_two_and_merges_when_it_can() -> None:
    lan = lan_of("abcd")
    lan.cut_off("cd")
    lan.run(8.0)
    assert lan.views() == {"a": "ab", "b": "ab", "c": "cd", "d": "cd"}
    lan.heal()
    lan.run(3.0)
    assert set(lan.views().values()) == {"abcd"}


def test_a_member_that_was_removed_by_mistake_comes_back() -> None:
    lan = lan_of("abc")
    lan.cut_off("a")
    lan.run(8.0)
    assert (lan.views()["a"], lan.views()["b"]) == ("a", "bc")
    lan.heal()
    lan.run(3.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset("abc")}


def test_an_evicted_member_learns_why_and_is_not_admitted_again() -> None:
    lan = lan_of("abc")
    lan.machines["b"].evict(lan.machines["c"].me.id, "too slow", lan.now)
    lan.run(1.0)
    assert lan.left == {"c": "too slow"}
    assert lan.views()["a"] == "ab"


def test_an_earlier_view_changes_nothing() -> None:
    lan = lan_of("ab")
    old = View(1, lan.machines["a"].me.id, (lan.machines["a"].me, lan.machines["b"].me))
    lan.machines["b"].receive(GroupInstall(old), lan.machines["a"].me.id, lan.now)
    lan.run(0.1)
    assert lan.machines["b"].view == lan.machines["a"].view


def test_a_lost_view_is_said_again() -> None:
    lan = lan_of("a")
    machine = lan.start("b")
    machine.tick(lan.now)
    lan.perform("b")
    lan.cut_off("b")
    lan.run(0.3)
    assert lan.views() == {"a": "ab", "b": ""}
    lan.heal()
    lan.run(1.0)
    assert lan.views() == {"a": "ab", "b": "ab"}


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    machine = lan_of("a").machines["a"]
    with pytest.raises(AssertionError):
        machine._become(MembershipState.JOINING)
    assert machine.state is MembershipState.MEMBER


def test_members_can_be_given_from_outside() -> None:
    a, b = Member(b"a" * 16), Member(b"b" * 16)
    given = GivenMembership(a)
    given.give([a])
    given.give([a, b])
    views = [effect.view for effect in given.take_effects() if isinstance(effect, ViewInstalled)]
    assert [(view.counter, len(view.members)) for view in views] == [(1, 1), (2, 2)]


def test_a_beat_carries_the_view_of_its_sender() -> None:
    lan = lan_of("ab")
    lan.said.clear()
    lan.run(1.0)
    view = lan.machines["a"].view
    assert view is not None
    assert ("b", GroupBeat(*view.key)) in lan.said


def test_a_coordinator_that_holds_everyone_up_leaves_and_the_next_takes_over() -> None:
    lan = lan_of("abc")
    lan.machines["b"].evict(lan.machines["a"].me.id, "took nothing", lan.now)
    lan.run(3.0)
    assert lan.left == {"a": "took nothing"}
    assert lan.views()["b"] == lan.views()["c"] == "bc"


def test_one_that_is_with_others_now_is_not_waited_for_to_coordinate() -> None:
    """When a crashes, b is next by rank for c; but b removed a alone, and does not know that c is there."""
    lan = lan_of("ab")
    lan.cut_off("b")
    lan.run(1.0)
    lan.start("c")
    lan.run(1.0)
    del lan.machines["a"]
    lan.run(2.0)
    assert lan.views() == {"b": "b", "c": "abc"}
    lan.heal()
    lan.run(8.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset("bc")}


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize(
    "groups",
    [{"a": "a", "cb": "b"}, {"b": "b", "ca": "a"}, {"ca": "a", "db": "b"}, {"da": "a", "cb": "b"}],
)
def test_a_coordinator_that_did_not_make_its_view_is_known_as_one_and_merged(
    groups: dict[str, str], multicast: bool
) -> None:
    """The member that made the view suspected the first by rank, which was heard again later."""
    lan = Lan(multicast=multicast)
    everyone = "".join(groups)
    for name in everyone:
        lan.start(name, tuple(address_of(seed) for seed in everyone))
    for ranks, maker in groups.items():
        view = View(6, lan.machines[maker].me.id, tuple(lan.machines[name].me for name in ranks))
        for name in ranks:
            lan.machines[name].receive(GroupInstall(view), b"another", lan.now)
    lan.run(2.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset(everyone)}


def test_one_that_coordinates_an_earlier_view_of_ours_is_only_behind() -> None:
    """If that view were merged, members that left since would be back."""
    lan = lan_of("abc")
    a, b = lan.machines["a"], lan.machines["b"]
    assert a.view is not None
    earlier = GroupBeat(*a.view.key, is_coordinating=True)
    lan.machines["c"].leave(lan.now)
    lan.run(1.0)
    a.receive(earlier, b.me.id, lan.now)
    assert a.take_effects() == [SendToGroup(b.me.id, GroupInstall(a.view))]


def test_nobody_makes_two_views_that_seem_the_same() -> None:
    """B made a view, and is removed by a view of c with the same counter. D still has the view of b."""
    lan = Lan()
    b, c, d = (lan.start(name) for name in "bcd")
    made = View(5, b.me.id, (c.me, b.me, d.me))
    for machine in (b, d):
        machine.receive(GroupInstall(made), c.me.id, lan.now)
    b.receive(GroupInstall(View(5, c.me.id, (c.me,))), c.me.id, lan.now)
    assert b.view is not None
    assert b.view.key > made.key
    del lan.machines["c"]
    lan.run(8.0)
    assert {frozenset(view) for view in lan.views().values()} == {frozenset("bd")}


def test_one_that_refers_to_a_coordinator_we_do_not_know_is_astray() -> None:
    """Without multicast its beats do not arrive; its other messages show only that it is alive."""
    machine = Lan().start("c")
    a, b, d = (Member(name.ljust(16, b"\0")) for name in (b"a", b"b", b"d"))
    machine.receive(GroupInstall(View(7, a.id, (b, machine.me))), a.id, 0.0)
    for now in range(8):
        machine.receive(GroupFound(d), b.id, float(now))
        machine.tick(float(now))
    assert machine.is_coordinator
    assert machine.view is not None
    assert machine.view.ids == (machine.me.id,)


def test_of_two_that_put_out_each_other_one_stays() -> None:
    lan = lan_of("ab")
    a, b = lan.machines["a"], lan.machines["b"]
    lan.cut_off("b")
    a.evict(b.me.id, "took nothing", lan.now)
    lan.run(8.0)
    b.evict(a.me.id, "took nothing", lan.now)
    lan.run(1.0)
    assert lan.views() == {"a": "a", "b": "b"}
    lan.heal()
    for one, other in ((a, b), (b, a)):
        one.receive(GroupEvicted("took nothing"), other.me.id, lan.now)
    lan.run(3.0)
    assert lan.left == {"b": "took nothing"}


def test_a_leaving_member_evicts_nobody() -> None:
    lan = lan_of("ab")
    a, b = lan.machines["a"], lan.machines["b"]
    a.evict(b.me.id, "took nothing", lan.now)
    a.receive(GroupEvict(a.me.id, "took nothing either"), b.me.id, lan.now)
    lan.run(3.0)
    assert lan.left == {"b": "took nothing"}
    lan = lan_of("ab")
    a, b = lan.machines["a"], lan.machines["b"]
    a.leave(lan.now)
    a.evict(b.me.id, "took nothing", lan.now)
    lan.run(3.0)
    assert lan.left == {"a": ""}


def test_a_member_that_leaves_is_not_taken_back() -> None:
    """Its hello, its beat or its view may come late. It was admitted again, and lost what was sent meanwhile."""
    lan = lan_of("abc")
    a, c = lan.machines["a"], lan.machines["c"]
    view = c.view
    assert view is not None
    said = (GroupHello(c.me), GroupBeat(*view.key, is_coordinating=False), GroupInstall(view))
    c.leave(lan.now)
    c.receive(GroupAskView(), a.me.id, lan.now)
    assert not any(isinstance(each, SendToGroup) and each.peer == a.me.id for each in c.take_effects())
    lan.run(1.0)
    assert [lan.views()[name] for name in "ab"] == ["ab", "ab"]
    for late in said:
        a.receive(late, c.me.id, lan.now)
        lan.run(0.5)
    assert [lan.views()[name] for name in "ab"] == ["ab", "ab"]


def test_a_stranger_evicts_nobody() -> None:
    lan = lan_of("ab")
    lan.machines["b"].receive(GroupEvicted("because"), b"a stranger's id!", lan.now)
    lan.run(1.0)
    assert (lan.left, lan.views()) == ({}, {"a": "ab", "b": "ab"})


def test_a_view_that_a_stranger_repeats_changes_nothing() -> None:
    """It put a member out of the group, which missed events for as long as the others did not hear of it."""
    lan = Lan()
    for name in "abc":
        lan.start(name)
    lan.run(10.0)
    b = lan.machines["b"]
    view = b.view
    assert view is not None
    without = View(view.counter + 4, view.ids[1], view.members[1:])
    b.receive(GroupInstall(without), b"a stranger's id!", lan.now)
    assert b.view == view
    b.receive(GroupInstall(without), view.ids[1], lan.now)
    assert b.view == without

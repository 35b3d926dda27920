"""The multicast machine when members come and go, and when one of them is slow."""

from __future__ import annotations

from reknit.outcome import Reason
from reknit.protocol.multicast.effects import DeadLetteredEvents, EvictSlow
from reknit.protocol.multicast.settings import GroupSettings, SlowMember
from reknit.wire.groups import (
    GroupAck,
    GroupAskStart,
    GroupGone,
    GroupHoldings,
    GroupPiece,
    GroupRecover,
    GroupStart,
)
from tests.protocol.multicast.network import Item, Wire, member_id, view_of

# -- joiners


def test_a_joiner_starts_at_the_seq_that_the_sender_fixed_and_told_it() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 5)
    wire.start("C")
    wire.install("ABC")
    wire.send_numbers("A", 3)
    assert wire.seqs("C", "A") == [6, 7, 8]
    assert wire.lost["C"] == []


def test_a_joiner_is_in_the_ack_table_from_its_start_seq_on() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 5)
    wire.start("C")
    wire.drop = lambda sender, receiver, item: receiver == "C"
    wire.install("ABC")
    wire.send_numbers("A", 7)
    wire.run(1.0)
    outbox = wire.machines["A"].sender.outbox
    assert (outbox.acks[member_id("C")], outbox.window.acked) == (5, 5)
    wire.drop = lambda sender, receiver, item: False
    wire.run(1.0)
    assert wire.seqs("C", "A") == list(range(6, 13))


def test_start_is_said_again_until_the_joiner_acks() -> None:
    wire = Wire("A")
    wire.start("C")
    wire.drop = lambda sender, receiver, item: receiver == "C"
    wire.install("AC")
    wire.run(1.0)
    assert len([said for said in wire.kinds(GroupStart) if said[0] == "A"]) > 5
    wire.drop = lambda sender, receiver, item: False
    wire.run(1.0)
    wire.said.clear()
    wire.run(1.0)
    assert wire.kinds(GroupStart) == []


def test_a_start_that_comes_before_the_view_is_used_later() -> None:
    wire = Wire("A")
    wire.start("C")
    wire.install("AC", only="A")
    wire.install("AC", only="C")
    assert member_id("A") in wire.machines["C"].receivers


def test_events_of_a_sender_whose_start_is_missing_make_the_joiner_ask() -> None:
    wire = Wire("A", GroupSettings(repeat_s=60.0))
    wire.start("C")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupStart)
    wire.install("AC")
    wire.drop = lambda sender, receiver, item: False
    wire.send("A", b"x")
    assert wire.kinds(GroupAskStart)
    wire.run(0.1)
    assert wire.seqs("C", "A") == [1]


def test_a_joiner_whose_start_was_purged_reports_the_gap_and_continues() -> None:
    wire = Wire("A", GroupSettings(capacity_events=200))
    wire.send("A", *[b"x"] * 150)
    machine = wire.start("J")
    machine.install(view_of("AJ"), wire.now)
    machine.receive(GroupStart(100, 200, 1 << 20, 1 << 20), member_id("A"), wire.now)
    machine.receive(GroupGone(member_id("A"), 150), member_id("A"), wire.now)
    wire.settle()
    assert wire.lost["J"] == [("A", 101, 151)]
    wire.install("AJ")
    wire.send("A", b"next")
    assert wire.seqs("J", "A") == [151]


def test_an_ack_from_before_the_start_does_not_end_it() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 5)
    wire.install("A", only="A")
    wire.send_numbers("A", 5)
    wire.drop = lambda sender, receiver, item: receiver == "B"
    wire.install("AB", only="A")
    wire.machines["A"].receive(GroupAck(5), member_id("B"), wire.now)
    wire.drop = lambda sender, receiver, item: False
    wire.run(1.0)
    assert wire.machines["B"].receivers[member_id("A")].window.delivered == 10


def test_a_member_that_comes_back_gets_a_start_and_reports_missed_events() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 3)
    wire.install("A", only="A")
    wire.install("B", only="B")
    wire.run(1.0)
    wire.drop = lambda sender, receiver, item: True
    wire.send_numbers("A", 4)
    wire.drop = lambda sender, receiver, item: False
    wire.install("AB")
    wire.send_numbers("A", 2)
    assert wire.lost["B"] == [("A", 4, 8)]
    assert wire.seqs("B", "A") == [1, 2, 3, 8, 9]


# -- leavers


def test_capacity_five_and_one_silent_the_sixth_waits_until_the_view_is_without_it() -> None:
    wire = Wire("ABCD", GroupSettings(capacity_events=5))
    wire.silent = {"D"}
    assert wire.send_numbers("A", 5) == 5
    for number in range(6, 11):
        assert wire.send("A", b"%d" % number, ticket=number) == 0
    wire.install("ABC")
    wire.run(1.0)
    for name in "ABC":
        assert [payload for _, _, payload in wire.got[name]] == [b"%d" % n for n in range(1, 11)]


def losing_to(name: str) -> Wire:
    """A sends five events to B and C, and crashes. One of them gets only the first two."""
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: (
        receiver == name and isinstance(item, GroupPiece) and sender == "A" and item.first > 2
    )
    wire.send_numbers("A", 5)
    del wire.machines["A"]
    return wire


def test_survivors_of_a_crashed_sender_end_with_the_same_prefix() -> None:
    wire = losing_to("C")
    assert wire.seqs("C", "A") == [1, 2]
    wire.install("BC")
    wire.run(1.0)
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == [1, 2, 3, 4, 5]


def test_a_survivor_takes_nothing_of_the_departed_that_the_others_may_lack() -> None:
    wire = losing_to("C")
    wire.install("BC")
    [piece] = [
        item for _, _, item in wire.kinds(GroupPiece) if isinstance(item, GroupPiece) and item.first == 5
    ][:1]
    late = GroupPiece(piece.source, 6, 1, piece.length, piece.size, 0, 0, piece.data)
    wire.machines["B"].receive(late, member_id("A"), wire.now)
    wire.run(1.0)
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == [1, 2, 3, 4, 5]


def test_the_exchange_starts_over_when_another_survivor_crashes() -> None:
    wire = Wire("ABCD")
    wire.drop = lambda sender, receiver, item: (
        receiver in "CD" and isinstance(item, GroupPiece) and item.first > 2
    )
    wire.send_numbers("A", 5)
    del wire.machines["A"]
    wire.drop = lambda sender, receiver, item: receiver == "D" or isinstance(item, GroupRecover)
    wire.install("BCD")
    wire.run(0.05)
    del wire.machines["B"]
    wire.drop = lambda sender, receiver, item: False
    wire.install("CD")
    wire.run(5.0)
    assert wire.seqs("C", "A") == wire.seqs("D", "A")


def test_survivors_deliver_all_events_that_one_of_them_has_and_lose_the_rest() -> None:
    wire = Wire("ABC")

    def drop(sender: str, receiver: str, item: Item) -> bool:
        lacking = {"B": (4, 5), "C": (3, 5)}
        return sender == "A" and isinstance(item, GroupPiece) and item.first in lacking[receiver]

    wire.drop = drop
    wire.send_numbers("A", 6)
    del wire.machines["A"]
    wire.install("BC")
    wire.run(1.0)
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == [1, 2, 3, 4, 6]
    assert wire.lost["B"] == wire.lost["C"] == [("A", 5, 6)]


def test_events_that_no_survivor_has_are_lost_at_once_if_a_later_joiner_is_past_them() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=100))
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.first in (2, 3)
    wire.send_numbers("A", 3)
    wire.start("C")
    wire.install("ABC")
    wire.send_numbers("A", 2)
    assert (wire.seqs("B", "A"), wire.seqs("C", "A")) == ([1], [4, 5])
    del wire.machines["A"]
    wire.install("BC")
    wire.run(1.0)
    assert wire.lost["B"] == [("A", 2, 4)]
    assert wire.seqs("B", "A") == [1, 4, 5]


def test_the_window_of_a_leaver_goes_after_the_exchange() -> None:
    wire = losing_to("C")
    wire.install("BC")
    wire.run(1.0)
    assert all(member_id("A") not in wire.machines[name].receivers for name in "BC")
    wire.said.clear()
    wire.run(20.0)
    assert wire.kinds(GroupHoldings) == []


def test_the_exchange_ends_when_its_time_is_over() -> None:
    wire = losing_to("C")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupHoldings)
    wire.install("BC")
    wire.run(wire.settings.departed_s + 1.0)
    assert all(member_id("A") not in wire.machines[name].receivers for name in "BC")


def test_a_new_incarnation_is_a_new_source_from_seq_one() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 5)
    del wire.machines["A"]
    wire.start("X")
    wire.install("BX")
    wire.send_numbers("X", 2)
    assert wire.seqs("B", "X") == [1, 2]


# -- slow members


def slow(policy: SlowMember) -> Wire:
    wire = Wire("ABC", GroupSettings(capacity_events=10, slow_member=policy, slow_s=3.0))
    wire.silent = {"C"}
    wire.send_numbers("A", 10)
    wire.send("A", b"w", ticket=1)
    wire.run(4.0)
    return wire


def test_by_default_a_slow_member_is_waited_for() -> None:
    wire = slow(SlowMember.BLOCK)
    assert len(wire.machines["A"].sender.outbox.waiting) == 1


def test_a_slow_member_is_reported_for_eviction_where_the_policy_says_so() -> None:
    wire = slow(SlowMember.EVICT)
    [evicted] = [effect for effect in wire.effects["A"] if isinstance(effect, EvictSlow)]
    assert evicted == EvictSlow(member_id("C"), "took nothing after 0 of 10 for 3.0 s")


def test_events_that_a_slow_member_did_not_take_are_dead_lettered_by_policy() -> None:
    wire = slow(SlowMember.DEAD_LETTER)
    [letter] = [effect for effect in wire.effects["A"] if isinstance(effect, DeadLetteredEvents)]
    assert letter == DeadLetteredEvents(member_id("C"), 1, 11, Reason.EGRESS_FULL)
    assert wire.machines["A"].sender.outbox.high == 11
    assert wire.seqs("B", "A") == list(range(1, 12))


def test_a_member_that_acks_in_time_is_not_slow() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=4, slow_member=SlowMember.EVICT, slow_s=3.0))
    wire.silent = {"B"}
    wire.send("A", *[b"x"] * 20, ticket=1)
    for seq in range(1, 6):
        wire.run(2.0)
        wire.machines["B"].mark_delivered(member_id("A"), seq, wire.now)
    assert not [effect for effect in wire.effects["A"] if isinstance(effect, EvictSlow)]

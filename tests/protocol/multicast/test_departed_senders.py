"""A crashed sender: all survivors deliver the same events, and report the same as lost."""

from __future__ import annotations

import pytest

from reknit.protocol.multicast.settings import GroupSettings, SlowMember
from reknit.wire.groups import GroupAnnounce, GroupEnds, GroupHoldings, GroupPiece, GroupRecover, GroupStart
from tests.protocol.multicast.network import Item, Wire, member_id

PIECES = GroupSettings(capacity_events=20, piece_bytes=200)


def crash(wire: Wire, name: str, survivors: str) -> None:
    del wire.machines[name]
    wire.install(survivors)
    wire.run(2.0)


def test_events_behind_a_gap_that_nobody_can_fill_are_delivered_and_the_gap_is_reported() -> None:
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.first in (3, 4)
    wire.send_numbers("A", 6)
    crash(wire, "A", "BC")
    for name in "BC":
        assert wire.seqs(name, "A") == [1, 2, 5, 6]
        assert wire.lost[name] == [("A", 3, 5)]
        assert wire.machines[name].counts["lost"] == 2


def test_the_end_that_only_one_survivor_heard_of_is_reported_as_lost_by_all() -> None:
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: (
        (isinstance(item, GroupPiece) and item.first > 2)
        or (isinstance(item, GroupAnnounce) and receiver == "C")
    )
    wire.send_numbers("A", 5)
    wire.run(0.02)  # A announces its last seq; only B hears it
    crash(wire, "A", "BC")
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == [1, 2]
    assert wire.lost["B"] == wire.lost["C"] == [("A", 3, 6)]


def test_pieces_that_several_survivors_hold_are_put_together() -> None:
    wire = Wire("ABC", PIECES)

    def drop(sender: str, receiver: str, item: Item) -> bool:
        is_piece = sender == "A" and isinstance(item, GroupPiece)
        return is_piece and item.index % 2 == (receiver == "B")  # type: ignore[union-attr]

    wire.drop = drop
    wire.send("A", bytes(range(256)) * 4)
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == []
    wire.drop = lambda sender, receiver, item: False
    crash(wire, "A", "BC")
    assert wire.got["B"] == wire.got["C"] == [("A", 1, bytes(range(256)) * 4)]
    assert wire.lost["B"] == wire.lost["C"] == []


def test_a_batch_that_lacks_a_piece_everywhere_is_lost_everywhere() -> None:
    wire = Wire("ABC", PIECES)
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.index == 2
    wire.send("A", bytes(1000))
    wire.send("A", b"small")
    crash(wire, "A", "BC")
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == [2]
    assert wire.lost["B"] == wire.lost["C"] == [("A", 1, 2)]


def test_a_loss_is_reported_once_however_often_the_exchange_starts_over() -> None:
    wire = Wire("ABCD")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.first == 2
    wire.send_numbers("A", 3)
    crash(wire, "A", "BCD")
    crash(wire, "D", "BC")
    assert wire.lost["B"] == wire.lost["C"] == [("A", 2, 3)]


def test_events_given_up_in_one_view_stay_given_up_in_the_next() -> None:
    """C learns of the loss only in the second view, where D could send the events that B has reported as lost."""
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.first == 2
    wire.send_numbers("A", 3)
    wire.drop = lambda sender, receiver, item: receiver == "C"
    del wire.machines["A"]
    wire.install("BC")
    wire.run(0.5)
    assert (wire.lost["B"], wire.lost["C"]) == ([("A", 2, 3)], [])
    wire.drop = lambda sender, receiver, item: False
    wire.start("D")
    wire.install("BCD")
    stamp = wire.machines["B"].view.stamp  # type: ignore[union-attr]
    held = GroupHoldings(member_id("A"), stamp, 0, 3, 3, [(1, 4)], [], [], is_answer=False)
    for name in "BC":
        wire.machines[name].receive(held, member_id("D"), wire.now)
    wire.run(2.0)
    assert wire.seqs("C", "A") == wire.seqs("B", "A") == [1, 3]
    assert wire.lost["C"] == wire.lost["B"] == [("A", 2, 3)]


def test_when_the_exchange_times_out_every_member_reports_its_missing_events() -> None:
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: (
        isinstance(item, GroupPiece) and item.first == (3, 4)[receiver == "C"]
    )
    wire.send_numbers("A", 5)
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupHoldings)
    del wire.machines["A"]
    wire.install("BC")
    wire.run(wire.settings.departed_s + 1.0)
    assert (wire.seqs("B", "A"), wire.lost["B"]) == ([1, 2, 4, 5], [("A", 3, 4)])
    assert (wire.seqs("C", "A"), wire.lost["C"]) == ([1, 2, 3, 5], [("A", 4, 5)])


def test_a_joiner_without_a_start_from_a_crashed_sender_gets_the_events_of_others() -> None:
    wire = Wire("AB")
    wire.start("C")
    wire.drop = lambda sender, receiver, item: (sender, receiver) == ("A", "C")
    wire.install("ABC")
    wire.send_numbers("A", 3)
    assert wire.seqs("C", "A") == []
    crash(wire, "A", "BC")
    assert wire.seqs("C", "A") == [1, 2, 3]


@pytest.mark.parametrize("first", ["B", "C"])
def test_a_joiner_without_a_start_reports_no_loss_of_events_from_before_it(first: str) -> None:
    """Either reports first: B, which had all events and forgot them when A said so, or C, which was apart from A."""
    wire = Wire("ABC")
    wire.send_numbers("A", 2)
    wire.drop = lambda sender, receiver, item: receiver == "C"
    wire.install("AB", only="AB")
    wire.send_numbers("A", 3)
    wire.run(1.0)
    del wire.machines["A"]
    wire.start("D")
    wire.install("ABCD", only="BCD")
    wire.drop = lambda sender, receiver, item: receiver == "D" and sender != first
    wire.install("BCD")
    wire.run(0.05)
    wire.drop = lambda sender, receiver, item: False
    wire.run(1.0)
    assert wire.lost == {"A": [], "B": [], "C": [("A", 3, 6)], "D": []}
    assert [machine.departed(member_id("A")) for machine in wire.machines.values()] == [5, 5, 5]


def divided() -> Wire:
    """A and B are apart from C; A sends to B alone, and crashes."""
    wire = Wire("ABC")
    wire.send_numbers("A", 2)
    wire.install("AB", only="AB")
    wire.install("C", only="C")
    wire.run(1.0)
    wire.send_numbers("A", 3)
    del wire.machines["A"]
    wire.install("B", only="B")
    wire.run(1.0)
    assert (wire.seqs("B", "A"), wire.seqs("C", "A")) == ([1, 2, 3, 4, 5], [1, 2])
    return wire


def test_a_crashed_sender_that_is_in_a_merged_view_again_resumes_where_it_left_off() -> None:
    """C was apart, and has finished with A. Nobody knows yet that A crashed, so the merged view has it."""
    wire = Wire("ABC")
    wire.send_numbers("A", 2)
    wire.install("AB", only="AB")
    wire.install("C", only="C")
    wire.run(1.0)
    wire.send_numbers("A", 3)
    assert (wire.seqs("B", "A"), wire.seqs("C", "A")) == ([1, 2, 3, 4, 5], [1, 2])
    del wire.machines["A"]
    wire.install("ABC", only="BC")
    wire.run(1.0)
    wire.install("BC")
    wire.run(1.0)
    assert wire.seqs("C", "A") == [1, 2, 5]
    assert wire.lost["C"] == [("A", 3, 5)], "all members with A had these, and B forgot them"


def test_after_a_partition_a_member_with_fewer_events_of_a_crashed_sender_reports_the_rest() -> None:
    wire = divided()
    wire.install("BC")
    wire.run(1.0)
    assert (wire.lost["B"], wire.lost["C"]) == ([], [("A", 3, 6)])


def test_ends_are_asked_for_until_they_are_answered_and_then_no_more() -> None:
    wire = divided()
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupEnds)
    wire.install("BC")
    wire.run(1.0)
    assert wire.lost["C"] == []
    wire.drop = lambda sender, receiver, item: False
    wire.run(1.0)
    assert wire.lost["C"] == [("A", 3, 6)]
    wire.said.clear()
    wire.run(5.0)
    assert wire.kinds(GroupEnds) == []


def test_a_sender_that_was_removed_and_is_back_says_where_to_resume() -> None:
    wire = Wire("ABC")
    wire.send_numbers("A", 2)
    wire.install("A", only="A")
    wire.install("BC", only="BC")
    wire.send_numbers("A", 3)
    wire.run(1.0)
    wire.install("ABC")
    wire.send_numbers("A", 1)
    wire.run(1.0)
    for name in "BC":
        assert wire.seqs(name, "A") == [1, 2, 6]
        assert wire.lost[name] == [("A", 3, 6)]
    assert [said for said in wire.kinds(GroupStart) if said[0] == "A"]


def test_a_piece_is_requested_from_a_member_that_holds_it() -> None:
    wire = Wire("ABCD")
    wire.drop = lambda sender, receiver, item: (
        sender == "A" and receiver != "D" and isinstance(item, GroupPiece) and item.first == 2
    )
    wire.send_numbers("A", 3)
    crash(wire, "A", "BCD")
    asked = {
        item.asked
        for name, _, item in wire.kinds(GroupRecover)
        if isinstance(item, GroupRecover) and name in "BC"
    }
    assert member_id("D") in asked
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == wire.seqs("D", "A") == [1, 2, 3]


def test_delivered_events_of_a_departed_sender_make_room_for_the_rest() -> None:
    """A continued without B, whose program took nothing, so B's window is full when A crashes."""
    policy = SlowMember.DEAD_LETTER
    settings = GroupSettings(capacity_events=10, batch_events_max=5, slow_member=policy, slow_s=1.0)
    wire = Wire("ABC", settings)
    wire.silent.add("B")
    for number in range(20):
        wire.send("A", b"%d" % number, ticket=number)
    wire.run(1.5)
    crash(wire, "A", "BC")
    assert (wire.seqs("B", "A"), wire.seqs("C", "A")) == (list(range(1, 11)), list(range(1, 21)))
    wire.machines["B"].mark_delivered(member_id("A"), 5, wire.now)
    wire.run(1.0)
    assert wire.seqs("B", "A") == list(range(1, 16))
    wire.silent.clear()
    wire.hand("B", member_id("A"), 15)
    wire.run(1.0)
    assert (wire.seqs("B", "A"), wire.lost["B"]) == (list(range(1, 21)), [])


def test_events_delivered_while_a_sender_was_gone_are_acked_when_it_is_back() -> None:
    wire = Wire("ABC")
    wire.silent.add("B")
    wire.send_numbers("A", 2)
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupHoldings)
    wire.install("BC", only="BC")
    wire.silent.clear()
    wire.hand("B", member_id("A"), 2)
    wire.install("ABC")
    wire.run(1.0)
    assert wire.machines["B"].receivers[member_id("A")].window.acked == 2
    assert wire.machines["A"].sender.is_settled


def half_ended() -> Wire:
    """A crashed, and only D has all its events. B finished with A in a view without D, and C has not."""
    wire = Wire("ABCD")
    wire.send_numbers("A", 2)
    wire.drop = lambda sender, receiver, item: sender == "A" and receiver != "D"
    wire.send_numbers("A", 3)
    del wire.machines["A"]
    wire.drop = lambda sender, receiver, item: "C" in (sender, receiver) and receiver != "B"
    wire.install("BC", only="BC")
    wire.run(0.5)
    assert member_id("A") in wire.machines["C"].receivers
    assert member_id("A") not in wire.machines["B"].receivers
    wire.drop = lambda sender, receiver, item: False
    return wire


def test_a_member_that_finished_with_a_sender_takes_part_again_when_one_with_more_events_comes() -> None:
    wire = half_ended()
    wire.install("BCD")
    wire.run(2.0)
    for name in "BCD":
        assert (wire.seqs(name, "A"), wire.lost[name]) == ([1, 2, 3, 4, 5], [])
        assert member_id("A") not in wire.machines[name].receivers
    wire.said.clear()
    wire.run(5.0)
    assert wire.kinds(GroupHoldings) == [], "once in each view is enough"


def test_a_report_of_another_view_is_not_answered() -> None:
    """D knows already that it is with B and C; B does not. If B said that it had finished, D would not wait."""
    wire = half_ended()
    wire.said.clear()
    wire.install("BCD", only="CD")
    wire.run(1.0)
    answers = [
        item for _, _, item in wire.kinds(GroupHoldings) if isinstance(item, GroupHoldings) and item.is_answer
    ]
    assert answers == []
    wire.machines["B"].install(wire.machines["D"].view, wire.now)  # type: ignore[arg-type]
    wire.run(2.0)
    for name in "BCD":
        assert (wire.seqs(name, "A"), wire.lost[name]) == ([1, 2, 3, 4, 5], [])


def test_events_known_from_a_member_that_finished_are_fetched_from_one_that_holds_them() -> None:
    """D had finished with A before it met B, and sends nothing; C, which was with D, had not."""
    wire = Wire("ABCD")
    wire.send_numbers("A", 2)
    wire.drop = lambda sender, receiver, item: sender == "A" and receiver == "B"
    wire.send_numbers("A", 3)
    del wire.machines["A"]
    wire.install("B", only="B")
    wire.drop = lambda sender, receiver, item: receiver == "C"
    wire.install("CD", only="CD")
    wire.run(0.5)
    assert member_id("A") in wire.machines["C"].receivers
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupHoldings) and sender == "C"
    wire.install("BCD")
    wire.run(0.5)
    assert wire.kinds(GroupEnds)
    wire.drop = lambda sender, receiver, item: False
    wire.run(2.0)
    for name in "BCD":
        assert (wire.seqs(name, "A"), wire.lost[name]) == ([1, 2, 3, 4, 5], [])


def test_the_window_of_a_sender_that_is_back_is_as_large_as_it_says() -> None:
    wire = half_ended()
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupEnds)
    wire.install("BCD")
    again = wire.start("A")
    assert wire.machines["B"].receivers[member_id("A")].window.capacity > again.sender.outbox.window.capacity
    wire.install("ABCD")
    wire.run(1.0)
    assert wire.machines["B"].receivers[member_id("A")].window.capacity == again.sender.outbox.window.capacity


def test_nothing_is_forgotten_that_another_survivor_may_be_given() -> None:
    """D never had anything of A, and may get all that B holds. B gets more from C, and its window moves."""
    wire = Wire("ABC")
    wire.send_numbers("A", 10)
    wire.drop = lambda sender, receiver, item: receiver == "B"
    wire.send_numbers("A", 10)
    wire.start("D")
    del wire.machines["A"]
    wire.install("ABCD", only="BCD")
    wire.drop = lambda sender, receiver, item: (
        receiver == "D" and (sender == "C" or isinstance(item, GroupPiece))
    )
    wire.install("BCD")
    wire.run(0.5)
    assert wire.seqs("B", "A") == list(range(1, 21))
    wire.drop = lambda sender, receiver, item: False
    wire.run(2.0)
    assert (wire.seqs("D", "A"), wire.lost["D"]) == (list(range(9, 21)), [])


def test_events_that_others_gave_up_while_apart_are_not_given_up_here() -> None:
    """B has all events of A. D gives up the events that C lacks, too; but C was with B all the time, and D was not."""
    wire = Wire("ABCDE")
    wire.drop = lambda sender, receiver, item: (
        receiver in "CDE" and isinstance(item, GroupPiece) and item.first == 2
    )
    wire.send_numbers("A", 3)
    del wire.machines["A"]
    wire.drop = lambda sender, receiver, item: (sender, receiver) != ("E", "D")
    wire.install("DE", only="DE")
    wire.run(0.5)
    assert (wire.lost["D"], wire.lost["E"]) == ([("A", 2, 3)], [])
    wire.drop = lambda sender, receiver, item: False
    wire.install("BCDE")
    wire.run(2.0)
    assert wire.seqs("B", "A") == wire.seqs("C", "A") == [1, 2, 3]
    assert wire.seqs("D", "A") == wire.seqs("E", "A") == [1, 3]
    assert (wire.lost["C"], wire.lost["D"], wire.lost["E"]) == ([], [("A", 2, 3)], [("A", 2, 3)])


def test_new_members_are_asked_in_their_order() -> None:
    """A replayed run must be the same, whatever the order of a set is."""
    wire = divided()
    wire.said.clear()
    wire.install("BCDEFGHIJKLM", only="B")
    asked = [receiver for sender, receiver, _ in wire.kinds(GroupEnds) if sender == "B"]
    assert asked == list("CDEFGHIJKLM")

"""The multicast machine: sending, receiving, acks and gaps. One test per sentence of its design."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.errors import Closed, Full, LocalError
from reknit.protocol.multicast.effects import SendBatch, SendDone, SendFailed, SendToGroup
from reknit.protocol.multicast.settings import GroupSettings
from reknit.wire.groups import GroupAck, GroupAnnounce, GroupGone, GroupPiece, GroupRecover
from tests.protocol.multicast.network import Item, Wire, member_id

TEN = list(range(1, 11))


def is_piece(item: Item, *firsts: int) -> bool:
    return isinstance(item, GroupPiece) and (not firsts or item.first in firsts)


# -- sending


def test_everyone_delivers_every_event_in_order_and_the_sender_too() -> None:
    wire = Wire("ABC")
    wire.send_numbers("A", 10)
    assert all(wire.got[name] == [("A", n, b"%d" % n) for n in TEN] for name in "ABC")


def test_a_send_of_many_is_one_batch_and_one_range() -> None:
    wire = Wire("AB")
    wire.send("A", b"x", b"y", b"z")
    [(_, _, piece)] = wire.kinds(GroupPiece)
    assert isinstance(piece, GroupPiece)
    assert (piece.first, piece.count) == (1, 3)


def test_batches_leave_in_the_order_of_their_seqs() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=100, batch_events_max=2))
    wire.send("A", *[b"%d" % n for n in range(9)])
    assert [item.first for _, _, item in wire.kinds(GroupPiece) if isinstance(item, GroupPiece)] == [
        1,
        3,
        5,
        7,
        9,
    ]


def test_sender_has_no_room_when_the_window_is_full_and_takes_no_seq() -> None:
    wire = Wire("AB")
    wire.silent = {"B"}
    assert wire.send_numbers("A", 12) == 10
    outbox = wire.machines["A"].sender.outbox
    assert outbox.high == 10
    wire.silent = set()
    wire.machines["B"].mark_delivered(member_id("A"), 10, wire.now)
    wire.run(0.1)
    assert wire.send("A", b"next") == 1
    assert wire.seqs("B", "A") == [*TEN, 11]


def test_window_is_bounded_in_bytes_too() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=1000, window_bytes=5_000, batch_bytes_max=1_000))
    wire.silent = {"B"}
    accepted = wire.send("A", *[bytes(400)] * 100)
    assert 0 < accepted < 12
    assert wire.machines["A"].sender.outbox.window.bytes <= 5_000


def test_bytes_in_flight_stay_below_the_smallest_socket_buffer() -> None:
    wire = Wire("ABC", GroupSettings(capacity_events=1000, window_bytes=1 << 20))
    wire.machines["A"].sender.set_buffer(member_id("C"), 2_000)
    wire.machines["A"].sender.share_buffers(1)
    wire.silent = {"C"}
    wire.send("A", *[bytes(400)] * 100)
    assert wire.machines["A"].sender.outbox.window.bytes <= 2_000


def test_senders_share_the_buffer() -> None:
    wire = Wire("ABC", GroupSettings(capacity_events=1000, window_bytes=1 << 20, buffer_bytes=9_000))
    for name in "ABC":
        wire.send(name, b"x")
    wire.install("ABC")
    assert wire.machines["A"].sender.outbox.bytes_limit == 3_000


def test_an_event_larger_than_a_datagram_is_cut_and_put_together() -> None:
    wire = Wire("AB", GroupSettings(piece_bytes=100))
    wire.send("A", bytes(range(256)) * 20)
    assert wire.got["B"] == [("A", 1, bytes(range(256)) * 20)]


def test_an_event_over_the_limit_is_refused_with_what_to_do() -> None:
    with pytest.raises(LocalError, match=r"over group\.event_bytes_max \(10\): split it, or raise"):
        Wire("AB", GroupSettings(event_bytes_max=10)).send("A", bytes(11))


# -- waiting for room


def blocked(count: int = 4) -> Wire:
    """A full window of ten events, and some waiting senders."""
    wire = Wire("AB")
    wire.silent = {"B"}
    wire.send_numbers("A", 10)
    for number in range(count):
        assert wire.send("A", b"w", ticket=number) == 0
    return wire


def released(wire: Wire) -> list[object]:
    return [effect.ticket for effect in wire.effects["A"] if isinstance(effect, SendDone)]


def test_one_event_acked_releases_exactly_one_waiting_sender() -> None:
    wire = blocked()
    wire.machines["A"].receive(GroupAck(1), member_id("B"), wire.now)
    wire.settle()
    assert released(wire) == [0]


def test_purging_five_releases_all_four() -> None:
    wire = blocked()
    wire.machines["A"].receive(GroupAck(5), member_id("B"), wire.now)
    wire.settle()
    assert released(wire) == [0, 1, 2, 3]


def test_nothing_overtakes_a_waiting_sender() -> None:
    wire = blocked(1)
    wire.machines["A"].receive(GroupAck(1), member_id("B"), wire.now)
    assert wire.send("A", b"late") == 0


def test_a_timed_send_ends_when_its_time_is_over_and_leaves_no_hole() -> None:
    wire = blocked(0)
    wire.send("A", b"w", ticket="t", deadline=wire.now + 1.0)
    wire.run(2.0)
    assert SendFailed("t", 0, is_timeout=True) in wire.effects["A"]
    assert wire.machines["A"].sender.outbox.high == 10


def test_close_releases_every_blocked_sender() -> None:
    wire = blocked()
    wire.machines["A"].close(wire.now)
    wire.settle()
    ends = [effect for effect in wire.effects["A"] if isinstance(effect, SendFailed)]
    assert [(end.ticket, end.is_timeout) for end in ends] == [(n, False) for n in range(4)]
    with pytest.raises(Closed):
        wire.send("A", b"x")


def test_a_view_without_the_slow_member_releases_every_blocked_sender() -> None:
    wire = Wire("AB")
    wire.silent = {"B"}
    wire.send_numbers("A", 10)
    wire.send("A", b"w", ticket=1)
    wire.install("A", only="A")
    assert released(wire) == [1]


def test_a_cancelled_send_gets_no_seq() -> None:
    wire = blocked(1)
    assert wire.machines["A"].sender.outbox.cancel(0) == 0
    wire.machines["A"].receive(GroupAck(10), member_id("B"), wire.now)
    wire.settle()
    assert wire.machines["A"].sender.outbox.high == 10


def test_how_many_may_wait_is_limited() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=1, waiting_max=2))
    wire.silent = {"B"}
    wire.send("A", b"x")
    wire.send("A", b"x", ticket=1)
    wire.send("A", b"x", ticket=2)
    with pytest.raises(Full, match=r"group\.waiting_max"):
        wire.send("A", b"x", ticket=3)


# -- acks


def acks_of(wire: Wire, name: str) -> list[int]:
    return [item.seq for said, _, item in wire.kinds(GroupAck) if said == name and isinstance(item, GroupAck)]


def test_ack_is_sent_at_a_quarter_of_the_window() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=40))
    wire.said.clear()
    wire.send("A", *[b"x"] * 9)
    assert acks_of(wire, "B") == []
    wire.send("A", b"x")
    assert acks_of(wire, "B") == [10]


def test_ack_is_sent_at_a_quarter_of_a_buffer_that_is_smaller_than_the_window() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=1000, window_bytes=1 << 20, buffer_bytes=8_000))
    wire.said.clear()
    wire.send("A", bytes(1_500))
    assert not wire.kinds(GroupAck)
    wire.send("A", bytes(1_500))
    assert [(sender, receiver) for sender, receiver, _ in wire.kinds(GroupAck)] == [("B", "A")]


def test_an_owed_ack_is_sent_when_its_time_comes() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=40, quiet_s=5.0))
    wire.said.clear()
    wire.send("A", b"x")
    wire.run(0.1)
    assert acks_of(wire, "B") == [1]


def test_an_ack_means_that_the_application_has_the_events() -> None:
    wire = Wire("AB")
    wire.silent = {"B"}
    wire.send_numbers("A", 10)
    wire.run(1.0)
    assert wire.seqs("B", "A") == TEN
    assert set(acks_of(wire, "B")) == {0}
    assert wire.machines["A"].sender.outbox.window.acked == 0


def test_sender_is_in_its_own_ack_table() -> None:
    wire = Wire("AB")
    wire.silent = {"A"}
    assert wire.send_numbers("A", 12) == 10


def test_acks_of_non_members_and_of_unsent_events_are_ignored() -> None:
    wire = Wire("AB")
    wire.silent = {"B"}
    wire.send_numbers("A", 10)
    wire.machines["A"].receive(GroupAck(10), member_id("X"), wire.now)
    wire.machines["A"].receive(GroupAck(11), member_id("B"), wire.now)
    wire.settle()
    assert wire.machines["A"].sender.outbox.window.acked == 0


def test_a_sender_continues_after_all_acks_of_a_full_window_were_lost() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=4))  # an ack for every event
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupAck)
    wire.send("A", *[b"x"] * 12, ticket=1)
    wire.run(1.0)
    assert wire.seqs("B", "A") == [1, 2, 3, 4]
    wire.drop = lambda sender, receiver, item: False
    wire.run(2.0)
    assert wire.seqs("B", "A") == list(range(1, 13))
    assert released(wire) == [1]


def test_acks_questions_and_answers_pass_a_full_window() -> None:
    wire = Wire("AB")
    wire.silent = {"A", "B"}
    wire.drop = lambda sender, receiver, item: is_piece(item, 5)
    wire.send_numbers("A", 10)
    wire.send_numbers("B", 10)
    wire.drop = lambda sender, receiver, item: False
    wire.run(1.0)
    assert wire.seqs("B", "A") == TEN
    assert wire.seqs("A", "B") == TEN


# -- gaps


def test_a_gap_is_asked_for_at_once_as_a_range() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=100))
    wire.drop = lambda sender, receiver, item: is_piece(item, 3, 4, 5)
    wire.send_numbers("A", 7)
    assert wire.seqs("B", "A") == [1, 2]
    wire.drop = lambda sender, receiver, item: False
    wire.run(0.002)
    [(_, _, question)] = wire.kinds(GroupRecover)
    assert isinstance(question, GroupRecover)
    assert (question.asked, question.ranges) == (member_id("A"), [(3, 6)])
    assert wire.seqs("B", "A") == [1, 2, 3, 4, 5, 6, 7]


def test_only_the_lost_piece_of_a_batch_is_asked_for_and_sent() -> None:
    wire = Wire("AB", GroupSettings(piece_bytes=100))
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.index in (3, 7)
    wire.send("A", bytes(2_000))
    wire.drop = lambda sender, receiver, item: False
    wire.said.clear()
    wire.run(0.1)
    pieces = [item.index for _, _, item in wire.kinds(GroupPiece) if isinstance(item, GroupPiece)]
    assert pieces == [3, 7]
    assert wire.seqs("B", "A") == [1]


def test_pieces_of_an_unfinished_batch_need_no_turn_before_they_are_asked_for() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=100))
    wire.drop = lambda sender, receiver, item: is_piece(item)
    wire.send("A", *[bytes(1_000)] * 5)
    first, *others = [item for _, _, item in wire.kinds(GroupPiece) if isinstance(item, GroupPiece)]
    machine = wire.machines["B"]
    machine.receive(first, member_id("A"), wire.now)
    deadline = machine.next_deadline()
    assert deadline is not None
    assert wire.now < deadline <= wire.now + wire.settings.ask_s_max
    for piece in others:
        machine.receive(piece, member_id("A"), wire.now)
    assert machine.next_deadline() == 0.0


def test_a_question_is_not_repeated_within_its_cool_down() -> None:
    wire = Wire("AB", GroupSettings(again_s_min=0.1, again_s_max=0.1, quiet_s=50.0))
    wire.drop = lambda sender, receiver, item: is_piece(item, 1)
    wire.send_numbers("A", 3)
    wire.run(0.09)
    assert len(wire.kinds(GroupRecover)) == 1
    wire.run(0.1)
    assert len(wire.kinds(GroupRecover)) == 2


def test_a_member_that_hears_the_same_request_holds_back_its_own() -> None:
    wire = Wire("ABC", GroupSettings(ask_s_max=0.01, again_s_min=0.5, again_s_max=0.5, quiet_s=50.0))
    wire.drop = lambda sender, receiver, item: is_piece(item, 1)
    wire.send_numbers("A", 3)
    wire.run(0.4)
    assert len(wire.kinds(GroupRecover)) == 1


def test_one_asker_is_answered_alone_and_a_second_makes_it_multicast() -> None:
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece)
    wire.send("A", b"x")
    wire.said.clear()
    machine = wire.machines["A"]
    question = GroupRecover(member_id("A"), member_id("A"), [(1, 2)], [])
    machine.receive(question, member_id("B"), wire.now)
    wire.settle()
    machine.receive(question, member_id("C"), wire.now)
    wire.settle()
    assert [to for _, to, _ in wire.kinds(GroupPiece)] == ["B", None]


def test_several_askers_in_one_turn_are_answered_once_by_multicast() -> None:
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece)
    wire.send("A", b"x")
    question = GroupRecover(member_id("A"), member_id("A"), [(1, 2)], [])
    for asker in "BC":
        wire.machines["A"].receive(question, member_id(asker), wire.now)
    wire.machines["A"].tick(wire.now)
    answers = [e for e in wire.machines["A"].take_effects() if isinstance(e, SendBatch)]
    assert [answer.peer for answer in answers] == [None]


def test_any_holder_answers_when_the_sender_can_not() -> None:
    wire = Wire("ABC")
    wire.drop = lambda sender, receiver, item: (
        sender == "A" and receiver == "C" and isinstance(item, GroupPiece)
    )
    wire.send_numbers("A", 3)
    wire.run(1.0)
    assert wire.seqs("C", "A") == [1, 2, 3]
    assert any(said == "B" for said, _, _ in wire.kinds(GroupPiece))


def test_the_tail_is_recovered_after_a_quiet_interval_without_more_traffic() -> None:
    wire = Wire("AB")
    wire.drop = lambda sender, receiver, item: is_piece(item, 6, 7, 8, 9, 10)
    wire.send_numbers("A", 10)
    wire.drop = lambda sender, receiver, item: False
    wire.run(2 * wire.settings.quiet_s)
    assert wire.seqs("B", "A") == TEN


def test_a_quiet_sender_that_has_all_acks_says_nothing_more() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 3)
    wire.run(1.0)
    wire.said.clear()
    wire.run(5.0)
    assert wire.said == []


def test_announcement_is_always_acked() -> None:
    wire = Wire("AB")
    wire.said.clear()
    wire.machines["B"].receive(GroupAnnounce(0, 0, is_ack_wanted=True), member_id("A"), wire.now)
    wire.settle()
    assert acks_of(wire, "B") == [0]


def test_a_sender_answers_gone_for_purged_events() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 3)
    wire.run(1.0)
    question = GroupRecover(member_id("A"), member_id("A"), [(1, 3)], [])
    wire.machines["A"].receive(question, member_id("B"), wire.now)
    wire.machines["A"].tick(wire.now)
    assert SendToGroup(member_id("B"), GroupGone(member_id("A"), 3)) in wire.machines["A"].take_effects()


def test_a_member_that_hears_gone_reports_the_gap_and_continues() -> None:
    wire = Wire("AB", GroupSettings(capacity_events=100))
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece) and item.first < 4
    wire.send_numbers("A", 5)
    wire.machines["B"].receive(GroupGone(member_id("A"), 3), member_id("A"), wire.now)
    wire.settle()
    assert wire.lost["B"] == [("A", 1, 4)]
    assert wire.seqs("B", "A") == [4, 5]


def test_gone_from_anyone_but_the_sender_is_ignored() -> None:
    wire = Wire("ABC")
    wire.machines["B"].receive(GroupGone(member_id("A"), 3), member_id("C"), wire.now)
    assert wire.machines["B"].receivers[member_id("A")].window.delivered == 0


# -- receiving


def test_duplicates_are_delivered_once() -> None:
    wire = Wire("AB")
    wire.send_numbers("A", 3)
    for _, _, item in wire.kinds(GroupPiece):
        wire.machines["B"].receive(item, member_id("A"), wire.now)
    wire.settle()
    assert wire.seqs("B", "A") == [1, 2, 3]
    assert wire.machines["B"].counts["duplicates"] == 3


def test_a_receiver_drops_events_beyond_its_window() -> None:
    wire = Wire("AB")
    wire.send("A", b"x")
    [(_, _, piece)] = wire.kinds(GroupPiece)
    assert isinstance(piece, GroupPiece)
    far = GroupPiece(piece.source, 12, 1, piece.length, piece.size, 0, 0, piece.data)
    wire.machines["B"].receive(far, member_id("A"), wire.now)
    assert wire.machines["B"].receivers[member_id("A")].window.high == 1


def test_damaged_bytes_count_as_lost_and_are_asked_for() -> None:
    wire = Wire("AB")
    wire.drop = lambda sender, receiver, item: isinstance(item, GroupPiece)
    wire.send("A", b"precious")
    wire.drop = lambda sender, receiver, item: False
    [(_, _, piece)] = wire.kinds(GroupPiece)
    assert isinstance(piece, GroupPiece)
    bad = bytearray(piece.data)
    bad[-8] ^= 1
    broken = GroupPiece(piece.source, 1, 1, piece.length, piece.size, 0, 0, bytes(bad))
    wire.machines["B"].receive(broken, member_id("A"), wire.now)
    assert wire.got["B"] == []
    wire.run(1.0)
    assert wire.got["B"] == [("A", 1, b"precious")]


LOSSES = st.lists(st.booleans(), max_size=150)


@settings(max_examples=60, deadline=None)
@given(
    LOSSES, st.lists(st.tuples(st.sampled_from("ABC"), st.integers(1, 6)), max_size=20), st.integers(60, 400)
)
def test_all_members_deliver_the_same_after_any_losses(
    losses: list[bool], sends: list[tuple[str, int]], piece_bytes: int
) -> None:
    wire = Wire("ABC", GroupSettings(capacity_events=8, piece_bytes=piece_bytes))
    pending = iter(losses)
    wire.drop = lambda sender, receiver, item: next(pending, False)
    wanted: dict[str, list[bytes]] = {name: [] for name in "ABC"}
    for number, (name, count) in enumerate(sends):
        payloads = [b"%s-%d-%d" % (name.encode(), number, n) for n in range(count)]
        wanted[name] += payloads
        wire.send(name, *payloads, ticket=number)
        wire.run(0.001)
    wire.run(20.0)
    for receiver in "ABC":
        for source in "ABC":
            got = [payload for name, _, payload in wire.got[receiver] if name == source]
            assert got == wanted[source]
        assert wire.machines[receiver].sender.is_settled

"""The node's side of publishing: each event once, in order, acknowledged when it is durable."""

from typing import Any

from reknit.batch import Batch
from reknit.outcome import Code, Reason
from reknit.protocol.effects import Append, Mark, Send
from reknit.protocol.machine import JOURNAL, MadeDurable, Peer, PeerJoined, PeerLeft
from reknit.protocol.publish.admission import Refusal
from reknit.protocol.publish.inputs import RefusedBatch, ResumeIntake, StopIntake
from reknit.protocol.publish.intake import Effect, Intake
from reknit.wire.codec import Frames
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse

SOURCE = b"s" * 16


def batch(first: int, count: int = 1, topic: str = "plant/temp", source: bytes = SOURCE) -> Batch:
    return Batch.build(source, topic, first, [b"x"] * count, time_us=0)


def give(intake: Intake, *batches: Batch, peer: Peer = "p") -> list[Effect]:
    """Give the intake batches in one piece; returns its effects."""
    frames = Frames(b"".join([bytes(one.data) for one in batches]), [one.head for one in batches])
    intake.receive(frames, peer, 0.0)
    return intake.take_effects()


def kept(intake: Intake, number: int) -> list[Effect]:
    intake.receive(MadeDurable(number), JOURNAL, 0.0)
    return intake.take_effects()


def appended(effects: list[Effect]) -> list[tuple[int, int]]:
    return [
        (head.first, head.stop) for effect in effects if isinstance(effect, Append) for head in effect.heads
    ]


def test_batches_that_follow_on_are_appended_in_one_piece() -> None:
    intake = Intake({SOURCE: 0})
    give(intake, batch(1))
    one, two = batch(2, 3), batch(5)
    [append] = give(intake, one, two)
    assert isinstance(append, Append)
    assert append.data == bytes(one.data) + bytes(two.data)
    assert list(append.heads) == [one.head, two.head]


def test_event_is_acknowledged_when_it_is_durable_and_not_before() -> None:
    intake = Intake({})
    [append] = give(intake, batch(1, 3))
    assert isinstance(append, Append)
    assert kept(intake, append.number - 1) == []
    assert kept(intake, append.number) == [Send("p", Ack(SOURCE, 3))]


def test_acks_of_one_commit_are_one_message() -> None:
    intake = Intake({})
    give(intake, batch(1))
    give(intake, batch(2))
    assert kept(intake, 2) == [Send("p", Ack(SOURCE, 2))]


def test_known_durable_events_are_dropped_and_acknowledged_again() -> None:
    intake = Intake({SOURCE: 9})
    assert give(intake, batch(8, 2)) == [Send("p", Ack(SOURCE, 9))]
    assert intake.duplicates == 2


def test_known_events_that_are_not_durable_are_acknowledged_to_the_new_peer_later() -> None:
    intake = Intake({})
    [append] = give(intake, batch(1), peer="old")
    assert isinstance(append, Append)
    intake.receive(PeerLeft(), "old", 0.0)
    assert give(intake, batch(1), peer="new") == []
    assert kept(intake, append.number) == [Send("new", Ack(SOURCE, 1))]


def test_gap_is_requested_once_until_it_closes() -> None:
    intake = Intake({SOURCE: 4})
    assert give(intake, batch(7)) == [Send("p", Expect(SOURCE, 5))]
    assert give(intake, batch(8)) == []
    give(intake, batch(5, 2))
    assert give(intake, batch(9)) == [Send("p", Expect(SOURCE, 7))]


def test_batch_known_in_part_is_cut() -> None:
    intake = Intake({SOURCE: 2})
    assert appended(give(intake, batch(1, 5))) == [(3, 6)]
    assert intake.duplicates == 2


def test_sources_do_not_block_each_other() -> None:
    intake = Intake({SOURCE: 4})
    other = b"t" * 16
    effects = give(intake, batch(9), batch(1, source=other), batch(5))
    assert appended(effects) == [(1, 2), (5, 6)]


def test_invalid_topic_is_refused_for_good() -> None:
    one = batch(1, topic="plant//temp")
    intake = Intake({})
    dead, mark = give(intake, one)
    assert isinstance(mark, Mark)
    [refusal] = kept(intake, mark.number)
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert refusal.message.code == Code.INVALID_ARGUMENT
    assert isinstance(dead, RefusedBatch)
    assert (dead.refusal.reason, dead.batch.payloads()) == (Reason.MALFORMED, [b"x"])


NOT_YOU = Refusal(Code.PERMISSION_DENIED, "not you", Reason.DENIED)


def test_topic_over_the_node_s_limit_is_refused_for_good() -> None:
    intake = Intake({}, topic_bytes_max=len("plant/temp") - 1)
    one = Batch.build(SOURCE, "plant/temp", 1, [b"x"], time_us=0)
    dead, mark = give(intake, one)
    assert isinstance(mark, Mark)
    [refusal] = kept(intake, mark.number)
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert "limits.topic_bytes_max" in refusal.message.text
    assert isinstance(dead, RefusedBatch)
    assert appended(give(Intake({}, topic_bytes_max=len("plant/temp")), one)) == [(1, 2)]


def test_publisher_without_permission_is_refused_and_its_events_become_dead_letters() -> None:
    intake = Intake({}, permit=lambda peer, source, topic: NOT_YOU)
    dead, mark = give(intake, batch(1))
    assert isinstance(mark, Mark)
    assert kept(intake, mark.number - 1) == []
    [refusal] = kept(intake, mark.number)
    assert refusal == Send("p", Refuse(SOURCE, 1, 2, Code.PERMISSION_DENIED, "not you"))
    assert isinstance(dead, RefusedBatch)
    assert (dead.peer, dead.refusal, dead.batch.first, dead.batch.stop) == ("p", NOT_YOU, 1, 2)


def test_batch_refused_again_makes_no_second_dead_letter() -> None:
    intake = Intake({}, permit=lambda peer, source, topic: NOT_YOU)
    _, mark = give(intake, batch(1, 3))
    assert isinstance(mark, Mark)
    assert give(intake, batch(1, 3)) == [], "the dead letter is not durable yet"
    refusal = Send("p", Refuse(SOURCE, 1, 4, Code.PERMISSION_DENIED, "not you"))
    assert kept(intake, mark.number) == [refusal, refusal]
    assert give(intake, batch(1, 3)) == [refusal]
    dead, _ = give(intake, batch(2, 4))
    assert isinstance(dead, RefusedBatch)
    assert (dead.batch.first, dead.batch.stop) == (4, 6)


def test_permission_is_asked_for_every_connections_source_and_topic_and_once() -> None:
    asked: list[tuple[Peer, bytes, str]] = []

    def permit(peer: Peer, source: bytes, topic: str) -> Refusal | None:
        asked.append((peer, source, topic))
        return None if peer == "p" and topic == "plant/temp" else NOT_YOU

    intake = Intake({SOURCE: 0}, permit=permit)
    assert appended(give(intake, batch(1), batch(2))) == [(1, 2), (2, 3)]
    assert appended(give(intake, batch(3))) == [(3, 4)]
    assert appended(give(intake, batch(4), peer="q")) == []
    assert appended(give(intake, batch(4, topic="plant/door"))) == []
    assert appended(give(intake, batch(4))) == [(4, 5)]
    assert asked == [("p", SOURCE, "plant/temp"), ("q", SOURCE, "plant/temp"), ("p", SOURCE, "plant/door")]
    intake.receive(PeerLeft(), "p", 0.0)
    give(intake, batch(5))
    assert asked[-1] == ("p", SOURCE, "plant/temp")


def test_who_may_not_publish_learns_nothing_and_claims_nothing() -> None:
    allowed = {"p"}
    intake = Intake({SOURCE: 7}, permit=lambda peer, source, topic: None if peer in allowed else NOT_YOU)
    refusals = give(intake, batch(1), peer="q")
    intake.receive(Declare(SOURCE, "plant/temp"), "q", 0.0)
    refusals += intake.take_effects()
    refusals += give(intake, batch(20), peer="q")
    refusals += kept(intake, 2)
    said = [effect.message for effect in refusals if isinstance(effect, Send)]
    assert [type(message) for message in said] == [Refuse, Refuse, Refuse]
    assert appended(give(intake, batch(8))) == [(8, 9)]


def test_batches_with_attributes_are_inspected_and_plain_ones_are_not() -> None:
    seen: list[int] = []

    def inspect(peer: Peer, one: Batch) -> Refusal | None:
        seen.append(one.first)
        return Refusal(Code.INVALID_ARGUMENT, "no", Reason.MALFORMED) if one.first > 3 else None

    def special(first: int, **fields: Any) -> Batch:
        return Batch.build(SOURCE, "plant/temp", first, [b"x"], 0, **fields)

    intake = Intake({SOURCE: 0}, inspect=inspect)
    assert appended(give(intake, batch(1), special(2, flags=1), special(3, type=2))) == [
        (1, 2),
        (2, 3),
        (3, 4),
    ]
    dead, mark = give(intake, special(4, flags=1))
    assert isinstance(dead, RefusedBatch)
    assert isinstance(mark, Mark)
    assert appended(give(intake, batch(4))) == [(4, 5)]
    assert seen == [2, 3, 4]


def test_batch_after_a_refused_one_is_not_taken_either() -> None:
    """Its publisher was told that nothing of it is taken, so nothing may be."""
    problems: list[Refusal | None] = [
        Refusal(Code.RESOURCE_EXHAUSTED, "full", Reason.EGRESS_FULL),
        None,
        None,
    ]

    def special(first: int) -> Batch:
        return Batch.build(SOURCE, "plant/temp", first, [b"x"], 0, flags=1)

    intake = Intake({}, inspect=lambda peer, one: problems.pop(0))
    give(intake, special(1))
    assert give(intake, special(2)) == [Send("p", Expect(SOURCE, 1))]
    assert appended(give(intake, special(1), special(2))) == [(1, 2), (2, 3)]


def test_one_source_too_many_is_refused() -> None:
    intake = Intake({SOURCE: 1}, sources_max=1)
    [refusal] = give(intake, batch(1, source=b"t" * 16))
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert refusal.message.code == Code.RESOURCE_EXHAUSTED


def test_full_journal_holds_publishers_until_there_is_room() -> None:
    intake = Intake({SOURCE: 0})
    give(intake, batch(1))
    intake.receive(StopIntake("no space"), JOURNAL, 0.0)
    assert intake.take_effects() == [Send("p", Hold(Code.RESOURCE_EXHAUSTED, "no space"))]
    assert give(intake, batch(2)) == [Send("p", Hold(Code.RESOURCE_EXHAUSTED, "no space"))]
    intake.receive(ResumeIntake(), JOURNAL, 0.0)
    assert intake.take_effects() == [Send("p", Go())]
    assert appended(give(intake, batch(2))) == [(2, 3)]


def test_only_publishers_are_asked_to_wait() -> None:
    intake = Intake({})
    intake.receive(PeerJoined(), "subscriber", 0.0)
    intake.receive(StopIntake("no space"), JOURNAL, 0.0)
    intake.receive(ResumeIntake(), JOURNAL, 0.0)
    assert intake.take_effects() == []


def test_new_source_begins_with_its_first_event_also_when_that_was_turned_away() -> None:
    """Otherwise the third event would be taken for the first, and the first two for duplicates of it."""
    intake = Intake({})
    intake.receive(StopIntake("no space"), JOURNAL, 0.0)
    give(intake, batch(1, 2))
    intake.receive(ResumeIntake(), JOURNAL, 0.0)
    intake.take_effects()
    assert give(intake, batch(3)) == [Send("p", Expect(SOURCE, 1))]
    assert appended(give(intake, batch(1, 2), batch(3))) == [(1, 3), (3, 4)]


def test_unknown_source_continues_where_it_is() -> None:
    """Its publisher may come from a node whose journal is lost."""
    assert appended(give(Intake({}), batch(50))) == [(50, 51)]


def test_declared_source_is_told_how_far_it_has_got() -> None:
    intake = Intake({SOURCE: 7})
    intake.receive(Declare(SOURCE, "plant/temp"), "p", 0.0)
    assert intake.take_effects() == [Send("p", Ack(SOURCE, 7))]


def test_declared_source_is_told_only_what_is_certain() -> None:
    """Events that the program sent before it restarted are staged: it must not use their seqs again."""
    intake = Intake({})
    [append] = give(intake, batch(1, 3), peer="old")
    assert isinstance(append, Append)
    intake.receive(Declare(SOURCE, "plant/temp"), "new", 0.0)
    assert intake.take_effects() == []
    assert Send("new", Ack(SOURCE, 3)) in kept(intake, append.number)


def test_older_connection_can_not_publish_for_a_source_that_a_newer_one_declared() -> None:
    intake = Intake({})
    for peer in ("old", "new"):
        intake.receive(PeerJoined(), peer, 0.0)
    intake.receive(Declare(SOURCE, "plant/temp"), "new", 0.0)
    intake.take_effects()
    [refusal] = give(intake, batch(1), peer="old")
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert appended(give(intake, batch(1), peer="new")) == [(1, 2)]


def test_late_declaration_over_an_older_connection_changes_nothing() -> None:
    intake = Intake({})
    for peer in ("old", "new"):
        intake.receive(PeerJoined(), peer, 0.0)
    for peer in ("new", "old"):
        intake.receive(Declare(SOURCE, "plant/temp"), peer, 0.0)
    intake.take_effects()
    assert appended(give(intake, batch(1), peer="new")) == [(1, 2)]


def test_peer_that_left_is_not_answered() -> None:
    intake = Intake({})
    [append] = give(intake, batch(1))
    assert isinstance(append, Append)
    intake.receive(PeerLeft(), "p", 0.0)
    assert kept(intake, append.number) == []


def test_copies_of_known_events_are_acknowledged_while_their_publisher_is_here() -> None:
    intake = Intake({SOURCE: 9})
    intake.receive(PeerJoined(), "bridge", 0.0)
    intake.receive(Declare(SOURCE, "plant/temp"), "publisher", 0.0)
    intake.take_effects()
    assert give(intake, batch(8, 2), peer="bridge") == [Send("bridge", Ack(SOURCE, 9))]
    [refused] = give(intake, batch(10), peer="bridge")
    assert isinstance(refused, Send)
    assert isinstance(refused.message, Refuse)


def test_a_publisher_that_was_superseded_is_not_told_that_events_of_the_next_one_are_its_own() -> None:
    intake = Intake({SOURCE: 9})
    for peer in ("old", "new"):
        intake.receive(Declare(SOURCE, "plant/temp"), peer, 0.0)
    intake.take_effects()
    [refused] = give(intake, batch(8, 2), peer="old")
    assert isinstance(refused, Send)
    assert isinstance(refused.message, Refuse)


def test_events_that_the_node_appended_itself_are_known_when_they_come_back() -> None:
    intake = Intake({})
    intake.receive(PeerJoined(), "bridge", 0.0)
    number = intake.next_number()
    intake.appended_here(number, {SOURCE: 4})
    assert kept(intake, number) == []
    assert give(intake, batch(1, 3), peer="bridge") == [Send("bridge", Ack(SOURCE, 3))]


def test_events_that_another_node_has_stored_are_taken_whatever_their_time() -> None:
    """A node whose clock was set back refused what linked nodes sent, and never took anything of those sources again."""
    intake = Intake({})
    intake.set_clock(0, future_s_max=600.0)
    later = Batch.build(SOURCE, "plant/temp", 1, [b"x"], time_us=10**12)
    intake.copies("link")
    assert appended(give(intake, later, peer="link")) == [(1, 2)]
    other = Batch.build(b"t" * 16, "plant/temp", 1, [b"x"], time_us=10**12)
    [refused, _] = give(intake, other, peer="client")
    assert isinstance(refused, RefusedBatch)
    intake.receive(PeerLeft(), "link", 0.0)
    assert not appended(give(intake, other, peer="link")), "the next connection with this id is another one"


def test_only_a_part_of_a_node_publishes_below_reknit_also_as_a_source_that_it_began() -> None:
    intake = Intake({}, is_of_node=lambda peer: peer == "relay")
    first, second = batch(1, topic="reknit/audit"), batch(2, topic="reknit/audit")
    assert appended(give(intake, first, peer="relay")) == [(1, 2)]
    [counted, told] = give(intake, second, peer="eve")
    assert isinstance(counted, RefusedBatch)
    assert not counted.refusal.is_stored
    assert isinstance(told, Send)
    assert isinstance(told.message, Refuse)
    assert told.message.code == Code.PERMISSION_DENIED
    assert appended(give(intake, second, peer="relay")) == [(2, 3)]


def test_events_that_were_skipped_are_acknowledged_to_a_peer_that_brings_them_once_that_is_durable() -> None:
    """A group member's events were refused, and the link that brought the same ones later waited for ever."""
    intake = Intake({SOURCE: 4})
    [append] = give(intake, batch(1, source=b"t" * 16), peer="another")
    assert isinstance(append, Append)
    intake.skip(SOURCE, 8)
    assert give(intake, batch(5, 3), peer="link") == [Send("link", Ack(SOURCE, 4))]
    assert Send("link", Ack(SOURCE, 7)) in kept(intake, append.number)
    intake.skip(SOURCE, 10)  # nothing is on its way to the journal
    assert give(intake, batch(8, 2), peer="link") == [Send("link", Ack(SOURCE, 9))]

"""The node's side of publishing: each event once, in order, acknowledged when it is durable."""

from typing import Any

from reknit.batch import Batch
from reknit.outcome import Code, Reason
from reknit.protocol.effects import Append, Send
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.publish.intake import Effect, Full, Intake, Joined, Kept, Left, Problem, Refused, Room
from reknit.wire.codec import Frames
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse

SOURCE = b"s" * 16


def batch(first: int, count: int = 1, topic: str = "plant/temp", source: bytes = SOURCE) -> Batch:
    return Batch.build(source, topic, first, [b"x"] * count, time_us=0)


def give(intake: Intake, *batches: Batch, peer: Peer = "p") -> list[Effect]:
    """Batches that came in one piece, and what the intake wants because of them."""
    frames = Frames(b"".join([bytes(one.data) for one in batches]), [one.head for one in batches])
    intake.receive(frames, peer, 0.0)
    return intake.take_effects()


def kept(intake: Intake, number: int) -> list[Effect]:
    intake.receive(Kept(number), JOURNAL, 0.0)
    return intake.take_effects()


def appended(effects: list[Effect]) -> list[tuple[int, int]]:
    return [
        (head.first, head.stop) for effect in effects if isinstance(effect, Append) for head in effect.heads
    ]


def test_what_follows_on_is_appended_as_it_came_in_one_piece() -> None:
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


def test_what_is_known_and_durable_is_dropped_and_acknowledged_again() -> None:
    intake = Intake({SOURCE: 9})
    assert give(intake, batch(8, 2)) == [Send("p", Ack(SOURCE, 9))]
    assert intake.duplicates == 2


def test_what_is_known_and_not_durable_is_acknowledged_to_the_new_peer_later() -> None:
    intake = Intake({})
    [append] = give(intake, batch(1), peer="old")
    assert isinstance(append, Append)
    intake.receive(Left(), "old", 0.0)
    assert give(intake, batch(1), peer="new") == []
    assert kept(intake, append.number) == [Send("new", Ack(SOURCE, 1))]


def test_hole_is_asked_for_once_until_it_closes() -> None:
    intake = Intake({SOURCE: 4})
    assert give(intake, batch(7)) == [Send("p", Expect(SOURCE, 5))]
    assert give(intake, batch(8)) == []
    give(intake, batch(5, 2))
    assert give(intake, batch(9)) == [Send("p", Expect(SOURCE, 7))]


def test_batch_that_is_known_in_part_is_cut() -> None:
    intake = Intake({SOURCE: 2})
    assert appended(give(intake, batch(1, 5))) == [(3, 6)]
    assert intake.duplicates == 2


def test_sources_do_not_stand_in_each_others_way() -> None:
    intake = Intake({SOURCE: 4})
    other = b"t" * 16
    effects = give(intake, batch(9), batch(1, source=other), batch(5))
    assert appended(effects) == [(1, 2), (5, 6)]


def test_topic_that_is_none_is_refused_for_good() -> None:
    one = batch(1, topic="plant//temp")
    refusal, dead = give(Intake({}), one)
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert refusal.message.code == Code.INVALID_ARGUMENT
    assert isinstance(dead, Refused)
    assert (dead.problem.reason, dead.batch.payloads()) == (Reason.MALFORMED, [b"x"])


NOT_YOU = Problem(Code.PERMISSION_DENIED, "not you", Reason.DENIED)


def test_publisher_that_may_not_is_refused_and_its_events_die() -> None:
    intake = Intake({}, permit=lambda peer, source, topic: NOT_YOU)
    refusal, dead = give(intake, batch(1))
    assert refusal == Send("p", Refuse(SOURCE, 1, 2, Code.PERMISSION_DENIED, "not you"))
    assert isinstance(dead, Refused)
    assert (dead.peer, dead.problem, dead.batch.first, dead.batch.stop) == ("p", NOT_YOU, 1, 2)


def test_what_is_refused_again_is_no_second_dead_letter() -> None:
    intake = Intake({}, permit=lambda peer, source, topic: NOT_YOU)
    give(intake, batch(1, 3))
    [refusal] = give(intake, batch(1, 3))
    assert refusal == Send("p", Refuse(SOURCE, 1, 4, Code.PERMISSION_DENIED, "not you"))
    _, dead = give(intake, batch(2, 4))
    assert isinstance(dead, Refused)
    assert (dead.batch.first, dead.batch.stop) == (4, 6)


def test_permission_is_asked_for_every_connections_source_and_topic_and_once() -> None:
    asked: list[tuple[Peer, bytes, str]] = []

    def permit(peer: Peer, source: bytes, topic: str) -> Problem | None:
        asked.append((peer, source, topic))
        return None if peer == "p" and topic == "plant/temp" else NOT_YOU

    intake = Intake({SOURCE: 0}, permit=permit)
    assert appended(give(intake, batch(1), batch(2))) == [(1, 2), (2, 3)]
    assert appended(give(intake, batch(3))) == [(3, 4)]
    assert appended(give(intake, batch(4), peer="q")) == []
    assert appended(give(intake, batch(4, topic="plant/door"))) == []
    assert appended(give(intake, batch(4))) == [(4, 5)]
    assert asked == [("p", SOURCE, "plant/temp"), ("q", SOURCE, "plant/temp"), ("p", SOURCE, "plant/door")]
    intake.receive(Left(), "p", 0.0)
    give(intake, batch(5))
    assert asked[-1] == ("p", SOURCE, "plant/temp")


def test_who_may_not_publish_learns_nothing_and_claims_nothing() -> None:
    allowed = {"p"}
    intake = Intake({SOURCE: 7}, permit=lambda peer, source, topic: None if peer in allowed else NOT_YOU)
    refusals = give(intake, batch(1), peer="q")
    intake.receive(Declare(SOURCE, "plant/temp"), "q", 0.0)
    refusals += intake.take_effects()
    refusals += give(intake, batch(20), peer="q")
    said = [effect.message for effect in refusals if isinstance(effect, Send)]
    assert [type(message) for message in said] == [Refuse, Refuse, Refuse]
    assert appended(give(intake, batch(8))) == [(8, 9)]


def test_batches_with_attributes_are_inspected_and_plain_ones_are_not() -> None:
    seen: list[int] = []

    def inspect(peer: Peer, one: Batch) -> Problem | None:
        seen.append(one.first)
        return Problem(Code.INVALID_ARGUMENT, "no", Reason.MALFORMED) if one.first > 3 else None

    def special(first: int, **fields: Any) -> Batch:
        return Batch.build(SOURCE, "plant/temp", first, [b"x"], 0, **fields)

    intake = Intake({SOURCE: 0}, inspect=inspect)
    assert appended(give(intake, batch(1), special(2, flags=1), special(3, type=2))) == [
        (1, 2),
        (2, 3),
        (3, 4),
    ]
    refusal, dead = give(intake, special(4, flags=1))
    assert isinstance(refusal, Send)
    assert isinstance(dead, Refused)
    assert appended(give(intake, batch(4))) == [(4, 5)]
    assert seen == [2, 3, 4]


def test_what_follows_a_refused_batch_is_not_taken_either() -> None:
    """Its publisher was told that nothing of it is taken: that has to be so."""
    problems: list[Problem | None] = [
        Problem(Code.RESOURCE_EXHAUSTED, "full", Reason.EGRESS_FULL),
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
    intake.receive(Full("no space"), JOURNAL, 0.0)
    assert intake.take_effects() == [Send("p", Hold(Code.RESOURCE_EXHAUSTED, "no space"))]
    assert give(intake, batch(2)) == [Send("p", Hold(Code.RESOURCE_EXHAUSTED, "no space"))]
    intake.receive(Room(), JOURNAL, 0.0)
    assert intake.take_effects() == [Send("p", Go())]
    assert appended(give(intake, batch(2))) == [(2, 3)]


def test_only_who_publishes_is_asked_to_wait() -> None:
    intake = Intake({})
    intake.receive(Joined(), "subscriber", 0.0)
    intake.receive(Full("no space"), JOURNAL, 0.0)
    intake.receive(Room(), JOURNAL, 0.0)
    assert intake.take_effects() == []


def test_new_source_begins_with_its_first_event_also_when_that_was_turned_away() -> None:
    """Otherwise the third event would be taken for the first, and the first two for duplicates of it."""
    intake = Intake({})
    intake.receive(Full("no space"), JOURNAL, 0.0)
    give(intake, batch(1, 2))
    intake.receive(Room(), JOURNAL, 0.0)
    intake.take_effects()
    assert give(intake, batch(3)) == [Send("p", Expect(SOURCE, 1))]
    assert appended(give(intake, batch(1, 2), batch(3))) == [(1, 3), (3, 4)]


def test_source_that_is_not_known_goes_on_where_it_is() -> None:
    """Its publisher may come from a node whose journal is gone."""
    assert appended(give(Intake({}), batch(50))) == [(50, 51)]


def test_declared_source_is_told_how_far_it_has_got() -> None:
    intake = Intake({SOURCE: 7})
    intake.receive(Declare(SOURCE, "plant/temp"), "p", 0.0)
    assert intake.take_effects() == [Send("p", Ack(SOURCE, 7))]


def test_declared_source_is_told_only_what_is_certain() -> None:
    """What a former life of the program sent is staged: the next life must not use its seqs again."""
    intake = Intake({})
    [append] = give(intake, batch(1, 3), peer="old")
    assert isinstance(append, Append)
    intake.receive(Declare(SOURCE, "plant/temp"), "new", 0.0)
    assert intake.take_effects() == []
    assert Send("new", Ack(SOURCE, 3)) in kept(intake, append.number)


def test_older_connection_can_not_publish_for_a_source_that_a_newer_one_declared() -> None:
    intake = Intake({})
    for peer in ("old", "new"):
        intake.receive(Joined(), peer, 0.0)
    intake.receive(Declare(SOURCE, "plant/temp"), "new", 0.0)
    intake.take_effects()
    [refusal] = give(intake, batch(1), peer="old")
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert appended(give(intake, batch(1), peer="new")) == [(1, 2)]


def test_declaration_that_comes_late_over_an_older_connection_changes_nothing() -> None:
    intake = Intake({})
    for peer in ("old", "new"):
        intake.receive(Joined(), peer, 0.0)
    for peer in ("new", "old"):
        intake.receive(Declare(SOURCE, "plant/temp"), peer, 0.0)
    intake.take_effects()
    assert appended(give(intake, batch(1), peer="new")) == [(1, 2)]


def test_peer_that_left_is_not_answered() -> None:
    intake = Intake({})
    [append] = give(intake, batch(1))
    assert isinstance(append, Append)
    intake.receive(Left(), "p", 0.0)
    assert kept(intake, append.number) == []

"""The node's side of publishing: each event once, in order, acknowledged when it is durable."""

from reknit.batch import Batch
from reknit.outcome import Code
from reknit.protocol.codec import Frames
from reknit.protocol.effects import Append, Send
from reknit.protocol.intake import Effect, Full, Intake, Joined, Kept, Left, Room
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.messages import Ack, Declare, Expect, Go, Hold, Refuse

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
    [refusal] = give(Intake({}), batch(1, topic="plant//temp"))
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert refusal.message.code == Code.INVALID_ARGUMENT


def test_publisher_that_may_not_is_refused() -> None:
    intake = Intake({}, permit=lambda peer, topic: "not you")
    [refusal] = give(intake, batch(1))
    assert refusal == Send("p", Refuse(SOURCE, 1, 2, Code.PERMISSION_DENIED, "not you"))


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

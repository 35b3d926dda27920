"""What the core promises leaves after the commit that holds the record of it."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.outcome import Code, Outcome, Reason
from reknit.protocol.publish.admission import Refusal
from reknit.protocol.publish.inputs import RefusedBatch
from reknit.wire.codec import Frames
from reknit.wire.messages import (
    Answer,
    Ask,
    DispositionRow,
    Refuse,
    Rejection,
    Settle,
    Settled,
    Unsubscribe,
    Unsubscribed,
)
from reknit.wire.recovery import Recover, Recovered, Survey, Surveyed
from tests.node.core.driven import PUBLISHER, SOURCE, SUBSCRIBER, DrivenNode

ADMIN = 3
BAD = b"b" * 16


def refused_batch() -> Batch:
    return Batch.build(BAD, "plant/a", 1, [b"x"], time_us=1 << 60)  # in the far future


def test_repeated_pause_is_answered_after_the_commit_that_holds_the_first() -> None:
    node = DrivenNode()
    for number in (1, 2):
        node.core.order(Ask(number, "pause", {"pattern": "plant/**"}), ADMIN, node.now)
        node.run()
    assert not node.heard(ADMIN, Answer)
    node.commit_now()
    assert [answer.id for answer in node.heard(ADMIN, Answer)] == [1, 2]
    node.core.order(Ask(3, "pause", {"pattern": "plant/**"}), ADMIN, node.now)
    node.run()
    assert node.heard(ADMIN, Answer)[-1].id == 3, "it is durable already"


def test_drop_that_finds_nothing_is_answered_after_the_commit_of_the_drop_before() -> None:
    node = DrivenNode()
    node.core.stage(
        RefusedBatch(PUBLISHER, refused_batch(), Refusal(Code.INVALID_ARGUMENT, "bad", Reason.REJECTED)), 0.0
    )
    node.settle_down()
    for number in (1, 2):
        node.core.order(Ask(number, "drop_dead_letters", {"seqs": [1]}), ADMIN, node.now)
        node.run()
    assert not node.heard(ADMIN, Answer)
    node.commit_now()
    assert [answer.id for answer in node.heard(ADMIN, Answer)] == [1, 2]


def test_publisher_hears_of_a_refusal_after_the_commit_that_holds_the_dead_letter() -> None:
    node = DrivenNode()
    batch = refused_batch()
    node.core.joined(PUBLISHER, node.now)
    for _ in range(2):  # it is sent again
        node.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)
    assert not node.heard(PUBLISHER, Refuse)
    node.commit_now()
    assert len(node.heard(PUBLISHER, Refuse)) == 2
    assert node.core.dead_letter_admin.counts()["waiting"] == 1


def test_recovered_event_that_is_given_up_is_confirmed_after_the_commit_of_its_dead_letter() -> None:
    node = DrivenNode()
    node.subscribe("plant/a")
    batch = Batch.build(BAD, "plant/a", 1, [b"x"], time_us=0)
    rejected = Rejection(bytes(batch.data), int(Code.INVALID_ARGUMENT), "rejected", 1)
    node.give(Settle(1, 1, [], [rejected]), SUBSCRIBER)
    assert not node.heard(SUBSCRIBER, Settled)
    node.commit_now()
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]
    assert node.core.dead_letter_admin.counts()["waiting"] == 1


def test_subscriber_is_forgotten_after_the_commit_that_holds_the_record() -> None:
    node = DrivenNode()
    node.subscribe("plant/a", name="meter")
    node.give(Unsubscribe(1, forget=True), SUBSCRIBER)
    assert not node.heard(SUBSCRIBER, Unsubscribed)
    node.commit_now()
    assert [one.is_forgotten for one in node.heard(SUBSCRIBER, Unsubscribed)] == [True]


def test_message_that_rests_on_nothing_new_leaves_at_once() -> None:
    node = DrivenNode()
    node.core.say_when_durable(ADMIN, Answer(1, Code.OK, ""), node.now)
    assert len(node.heard(ADMIN, Answer)) == 1


def test_message_waits_for_everything_that_was_staged_before_it() -> None:
    node = DrivenNode()
    node.publish(topic="plant/a")
    node.core.say_when_durable(ADMIN, Answer(1, Code.OK, ""), node.now)
    node.run()
    assert not node.heard(ADMIN, Answer)
    node.commit_now()
    assert len(node.heard(ADMIN, Answer)) == 1


def test_outcome_of_a_durable_subscriber_is_confirmed_after_its_commit() -> None:
    node = DrivenNode()
    node.subscribe("plant/a", name="meter")
    batch = node.publish(topic="plant/a")
    node.settle_down()
    accepted = DispositionRow("plant/a", batch.source, 1, 2, int(Outcome.ACCEPTED))
    node.give(Settle(1, 1, [accepted]), SUBSCRIBER)
    assert not node.heard(SUBSCRIBER, Settled)
    node.commit_now()
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]


def test_caches_are_not_asked_for_events_that_are_on_their_way_to_the_disk() -> None:
    """A survey would name them, and a request would be answered with a denial: a subscriber took them for lost."""
    node = DrivenNode()
    batch = Batch.build(SOURCE, "plant/a", 1, [b"x", b"y"], time_us=0)
    node.core.joined(PUBLISHER, node.now)
    node.core.joined(SUBSCRIBER, node.now)
    node.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)
    node.core.recovery.receive(Survey(1, "plant/**", deep=False), SUBSCRIBER, node.now)
    node.core.recovery.receive(
        Recover(2, "plant/a", SOURCE, [(1, 3)], 1000, deep=False), SUBSCRIBER, node.now
    )
    node.run()
    assert not node.heard(SUBSCRIBER, Surveyed)
    assert not node.heard(SUBSCRIBER, Recovered)
    node.commit_now()
    assert [span.last for answer in node.heard(SUBSCRIBER, Surveyed) for span in answer.spans] == [2]
    assert [answer.size for answer in node.heard(SUBSCRIBER, Recovered)] == [len(batch.data)]


def test_questions_of_a_peer_that_left_are_forgotten() -> None:
    node = DrivenNode()
    batch = Batch.build(SOURCE, "plant/a", 1, [b"x"], time_us=0)
    node.core.joined(PUBLISHER, node.now)
    node.core.joined(SUBSCRIBER, node.now)
    node.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)
    node.core.recovery.receive(Survey(1, "plant/**", deep=False), SUBSCRIBER, node.now)
    node.run()
    node.core.left(SUBSCRIBER, node.now)
    node.commit_now()
    assert not node.heard(SUBSCRIBER, Surveyed)

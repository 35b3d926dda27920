"""Nobody is told an outcome before the record of it is durable."""

from __future__ import annotations

from reknit.ledger import ANYCAST
from reknit.outcome import FinalOutcome, Outcome
from reknit.wire.messages import DispositionRow, Settle, Settled, Unsubscribe, Unsubscribed
from reknit.wire.outcomes import RangeOutcome, Told, Want
from tests.node.core.driven import ORDERS, PUBLISHER, SOURCE, SUBSCRIBER, DrivenNode

ACCOUNT = f"{ANYCAST}orders/**"


def settle(number: int, seq: int, outcome: Outcome = Outcome.ACCEPTED) -> Settle:
    return Settle(1, number, [DispositionRow(ORDERS, SOURCE, seq, seq + 1, int(outcome))])


def want(node: DrivenNode, first: int = 1, kept: int = 0) -> None:
    node.anycast.want(Want(SOURCE, ORDERS, resend=True, first=first, kept=kept), PUBLISHER)
    node.run()


def outcomes(node: DrivenNode) -> list[int]:
    return [row.outcome for told in node.heard(PUBLISHER, Told) for row in told.rows]


def delivered(count: int = 1) -> DrivenNode:
    """A node with a subscriber that has some events, whose publisher wants their outcomes."""
    node = DrivenNode()
    want(node)
    node.subscribe()
    node.publish(count=count)
    node.settle_down()
    return node


def test_subscriber_hears_that_its_outcome_is_stored_after_the_commit_that_holds_it() -> None:
    node = delivered()
    node.give(settle(1, 1), SUBSCRIBER)
    assert not node.heard(SUBSCRIBER, Settled)
    node.commit_now()
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]
    assert node.journal.ledger.accounts[ACCOUNT].ends[ORDERS, SOURCE][FinalOutcome.ACCEPTED].covers(1, 2)


def test_publisher_hears_of_an_outcome_after_the_commit_that_holds_it() -> None:
    node = delivered()
    node.give(settle(1, 1), SUBSCRIBER)
    assert outcomes(node) == []
    node.commit_now()
    assert outcomes(node) == [Outcome.ACCEPTED]


def test_publisher_hears_of_a_rejection_after_the_commit_that_holds_its_dead_letter() -> None:
    node = delivered()
    node.give(settle(1, 1, Outcome.REJECTED), SUBSCRIBER)
    assert outcomes(node) == []
    node.commit_now()
    assert outcomes(node) == [Outcome.REJECTED]
    assert node.core.dead_letter_admin.counts()["waiting"] == 1


def test_outcomes_that_come_during_a_commit_are_written_together_and_told_after_the_next() -> None:
    node = delivered(count=3)
    for number in (1, 2, 3):
        node.give(settle(number, number), SUBSCRIBER)
    node.commit_now()
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]
    assert outcomes(node) == [Outcome.ACCEPTED]
    node.commit_now()
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1), Settled(1, 3)]
    assert outcomes(node) == [Outcome.ACCEPTED] * 3


def test_release_needs_no_record_and_is_confirmed_at_once() -> None:
    node = DrivenNode()  # nobody waits for the outcome: the node keeps the event
    node.subscribe()
    node.publish()
    node.settle_down()
    node.give(settle(1, 1, Outcome.RELEASED), SUBSCRIBER)
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]


def test_past_outcome_that_is_not_durable_yet_is_told_once_to_a_publisher_that_comes_back() -> None:
    node = delivered()
    node.give(settle(1, 1), SUBSCRIBER)
    node.core.left(PUBLISHER, node.now)
    want(node, first=1, kept=1)
    assert outcomes(node) == []
    node.commit_now()
    assert outcomes(node) == [Outcome.ACCEPTED]


def test_gateways_sender_hears_of_an_outcome_after_the_commit_that_holds_it() -> None:
    node = DrivenNode()
    told: list[RangeOutcome] = []
    node.anycast.sender(ORDERS, told.extend, source=SOURCE)
    node.subscribe()
    node.publish()
    node.settle_down()
    node.give(settle(1, 1), SUBSCRIBER)
    assert not told
    node.commit_now()
    assert [one.outcome for one in told] == [Outcome.ACCEPTED]


def test_subscription_that_ended_meanwhile_gets_no_confirmation() -> None:
    node = delivered()
    node.give(settle(1, 1), SUBSCRIBER)
    node.give(Unsubscribe(1), SUBSCRIBER)
    node.commit_now()
    assert not node.heard(SUBSCRIBER, Settled)
    assert len(node.heard(SUBSCRIBER, Unsubscribed)) == 1

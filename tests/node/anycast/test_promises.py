"""Nobody is told an outcome before the record of it is durable."""

from __future__ import annotations

from typing import Any

from reknit.batch import Batch
from reknit.ledger import ANYCAST
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.anycast.inputs import (
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourRecorded,
    NeighbourUp,
    OfferEvents,
    ReturnOutcome,
)
from reknit.protocol.routing.routes import LinkUp, SendToNeighbour
from reknit.wire.links import Announce, LinkState, Recorded, Return
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


def test_publisher_that_did_not_hear_that_its_event_is_stored_hears_how_it_ended() -> None:
    node = delivered()
    node.core.left(PUBLISHER, node.now)
    node.give(settle(1, 1), SUBSCRIBER)
    node.settle_down()
    want(node, first=1, kept=0)
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


def forwarded(confirms: bool = True) -> DrivenNode:
    """A node whose subscriber has an event that the neighbour b forwarded."""
    node = DrivenNode()
    node.subscribe()
    node.pass_on(NeighbourUp(confirms), "b")
    batch = Batch.build(SOURCE, ORDERS, 1, [b"x"], time_us=0)
    node.pass_on(OfferEvents(batch, "balanced", origin="b", visited=("b",)), "b")
    return node


def returned(node: DrivenNode) -> list[int]:
    """The numbers of the outcomes that the neighbour was returned."""
    return [message.number for message, _ in node.neighbours.got if isinstance(message, ReturnOutcome)]


def test_outcome_of_an_event_from_elsewhere_is_confirmed_when_the_neighbour_has_recorded_it() -> None:
    node = forwarded()
    node.give(settle(1, 1), SUBSCRIBER)
    assert returned(node) == [1]
    assert not node.heard(SUBSCRIBER, Settled)
    node.pass_on(NeighbourRecorded(1), "b")
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]


def test_outcome_for_a_neighbour_that_does_not_confirm_is_confirmed_at_once() -> None:
    node = forwarded(confirms=False)
    node.give(settle(1, 1), SUBSCRIBER)
    assert returned(node) == [0]
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]


def test_outcome_for_a_neighbour_that_is_gone_is_in_doubt_there_and_waits_for_nothing() -> None:
    node = forwarded()
    node.give(settle(1, 1), SUBSCRIBER)
    node.pass_on(NeighbourDown(), "b")
    assert node.heard(SUBSCRIBER, Settled) == [Settled(1, 1)]


def test_neighbour_hears_that_an_outcome_is_recorded_after_the_commit_that_holds_it() -> None:
    node = DrivenNode()
    node.pass_on(NeighbourUp(confirms=True), "b")
    routes = node.routes
    routes.receive(LinkUp(1), "b", 0.0)
    routes.receive(LinkState("b", 1, 1, {"n": 1}), "b", 0.0)
    routes.receive(Announce("b", 1, 1, [("orders/**", "any")], is_whole=True), "b", 0.0)
    node.publish()
    node.settle_down()
    row = Return(ORDERS, SOURCE, RangeOutcome(1, 2, Outcome.ACCEPTED), [])
    node.pass_on(NeighbourOutcomes([row], 5), "b")

    def recorded() -> list[Any]:
        said = [message for message, _ in node.neighbours.got if isinstance(message, SendToNeighbour)]
        return [one.message for one in said]

    assert recorded() == []
    node.commit_now()
    assert recorded() == [Recorded(5)]
    assert node.journal.ledger.accounts[ACCOUNT].ends[ORDERS, SOURCE][FinalOutcome.ACCEPTED].covers(1, 2)


def test_neighbour_that_does_not_answer_delays_nobody_else() -> None:
    node = forwarded()
    node.give(settle(1, 1), SUBSCRIBER)
    node.subscribe(sub=2)
    node.publish(topic="orders/old")
    node.settle_down()
    number = 1
    row = DispositionRow("orders/old", SOURCE, 1, 2, int(Outcome.ACCEPTED))
    for sub in (1, 2):
        node.give(Settle(sub, number := number + 1, [row]), SUBSCRIBER)
    node.settle_down()
    assert [one.sub for one in node.heard(SUBSCRIBER, Settled)] == [2]


def test_events_that_never_arrived_are_lost_when_a_node_starts() -> None:
    """It crashed before it had recorded that, or is older than this record."""
    node = delivered()
    node.give(settle(1, 1), SUBSCRIBER)
    node.settle_down()
    node.journal.ledger.skip(ORDERS, SOURCE, 2, 4)
    again = DrivenNode(node.journal)
    again.settle_down()
    ends = again.journal.ledger.accounts[ACCOUNT].ends[ORDERS, SOURCE]
    assert ends[FinalOutcome.LOST].ranges() == [(2, 4)]

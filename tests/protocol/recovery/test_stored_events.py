"""Storage acks: which caches a publisher hears of, and up to which event."""

from __future__ import annotations

from reknit.ledger import Ledger
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.effects import Send
from reknit.protocol.machine import PeerLeft
from reknit.protocol.recovery.stored_events import CacheSubscribed, StoredEvents
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow, Settle
from reknit.wire.recovery import Require, Stored
from tests.protocol.recovery.world import ANN, BOB, TOPIC

PUBLISHER, CACHE = 1, 2


def settle(start: int, stop: int, outcome: Outcome = Outcome.ACCEPTED, source: bytes = ANN) -> Settle:
    return Settle(5, 1, [DispositionRow(TOPIC, source, start, stop, outcome)])


def machine(ledger: Ledger | None = None) -> StoredEvents:
    one = StoredEvents(ledger or Ledger())
    one.receive(CacheSubscribed(5, "edge"), CACHE, 0.0)
    return one


def test_a_publisher_hears_of_what_is_stored_already_and_of_what_follows() -> None:
    stored = machine()
    stored.receive(settle(1, 4), CACHE, 0.0)
    assert stored.take_effects() == [], "nobody requires it"
    stored.receive(Require(ANN, TOPIC), PUBLISHER, 0.0)
    assert stored.take_effects() == [Send(PUBLISHER, Stored(ANN, 3, "edge"))]
    stored.receive(settle(6, 8), CACHE, 0.0)
    stored.receive(settle(4, 6), CACHE, 0.0)
    assert stored.take_effects() == [
        Send(PUBLISHER, Stored(ANN, 3, "edge")),
        Send(PUBLISHER, Stored(ANN, 7, "edge")),
    ], "up to the first gap"


def test_what_is_released_or_of_another_subscription_or_source_is_not_stored() -> None:
    stored = machine()
    stored.receive(Require(ANN, TOPIC), PUBLISHER, 0.0)
    stored.receive(settle(1, 4, Outcome.RELEASED), CACHE, 0.0)
    stored.receive(settle(1, 4), PUBLISHER, 0.0)
    stored.receive(settle(1, 4, source=BOB), CACHE, 0.0)
    assert stored.take_effects() == []


def test_a_durable_cache_keeps_what_it_accepted_before_and_another_may_have_lost_it() -> None:
    ledger = Ledger()
    ledger.open("edge", Pattern("**"), {}, 0)
    ledger.publish(TOPIC, ANN, 1, 9)
    ledger.settle("edge", TOPIC, ANN, 1, 4, FinalOutcome.ACCEPTED)
    stored = machine(ledger)
    stored.receive(settle(4, 6), CACHE, 0.0)
    stored.receive(PeerLeft(), CACHE, 0.0)
    stored.receive(CacheSubscribed(5, "edge"), CACHE + 1, 0.0)
    stored.receive(Require(ANN, TOPIC), PUBLISHER, 0.0)
    assert stored.take_effects() == [Send(PUBLISHER, Stored(ANN, 3, "edge"))]


def test_a_publisher_that_left_is_not_told() -> None:
    stored = machine()
    stored.receive(Require(ANN, TOPIC), PUBLISHER, 0.0)
    stored.receive(PeerLeft(), PUBLISHER, 0.0)
    stored.receive(settle(1, 4), CACHE, 0.0)
    assert stored.take_effects() == []

"""One delivery: its transitions, its parts, and its end by a ttl."""

from __future__ import annotations

from random import Random

import pytest

from reknit.batch import Batch
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.delivery import HERE, TRANSITIONS, AnycastDelivery, DeliveryState, DeliveryTerms
from reknit.protocol.anycast.inputs import Attach, Detach, OfferEvents, Resolve, SubscriberOutcomes
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.routing.routes import Routes
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow

SOURCE = b"s" * 16


def delivery() -> AnycastDelivery:
    return AnycastDelivery(
        terms=DeliveryTerms("orders", SOURCE, origin="a", mode="balanced"),
        start=1,
        stop=11,
        batch=None,
        size=1000,
        upstream=HERE,
        resend=True,
        visited=frozenset("a"),
    )


def test_a_released_delivery_excludes_its_path_and_can_be_sent_again() -> None:
    one = delivery()
    one.send(0.0, is_attempt=True)
    one.release(path_id=7)
    one.send(1.0, is_attempt=True)
    assert (one.state, one.excluded, one.attempts) == (DeliveryState.SENT, frozenset({7}), 2)


def test_every_state_has_its_transitions_and_only_the_end_has_none() -> None:
    assert set(TRANSITIONS) == set(DeliveryState)
    assert [state for state, after in TRANSITIONS.items() if not after] == [DeliveryState.ENDED]


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    one = delivery()
    with pytest.raises(AssertionError, match="can't become"):
        one.pin()
    one.end()
    with pytest.raises(AssertionError, match="can't become"):
        one.send(0.0, is_attempt=True)
    assert (one.state, one.attempts) == (DeliveryState.ENDED, 0)


def test_a_split_shares_the_terms_and_divides_events_and_bytes() -> None:
    one = delivery()
    one.send(2.0, is_attempt=True)
    rest = one.split(4)
    assert [(part.start, part.stop, part.size, part.state) for part in (one, rest)] == [
        (1, 4, 300, DeliveryState.SENT),
        (4, 11, 700, DeliveryState.SENT),
    ]
    assert rest.terms is one.terms


def test_an_event_that_is_parked_after_it_was_pinned_expires_by_its_ttl() -> None:
    machine = AnycastMachine("a", Routes("a", 1), Random(1))
    machine.receive(Attach(Pattern("orders"), "events", 10, "a1"), "a1", 0.0)
    batch = Batch.build(SOURCE, "orders", 1, [b"x"], time_us=0)
    machine.receive(OfferEvents(batch, "balanced", keeps=True, deadline=5.0), HERE, 0.0)
    machine.receive(SubscriberOutcomes([DispositionRow("orders", SOURCE, 1, 2, Outcome.RECEIVED)]), "a1", 0.1)
    machine.receive(Detach(is_clean=False), "a1", 0.2)
    assert machine.parked == 1
    machine.take_effects()
    machine.tick(5.0)
    [effect] = machine.take_effects()
    assert isinstance(effect, Resolve)
    assert (effect.fate.outcome, effect.fate.code) == (Outcome.REJECTED, Code.DEADLINE_EXCEEDED)
    assert machine.records() == 0

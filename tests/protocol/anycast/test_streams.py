"""Which path the anycast machine chooses for a stream, and what it does with one that is withdrawn."""

from __future__ import annotations

from random import Random

import pytest

from reknit.batch import Batch
from reknit.event import FLAG_STREAM
from reknit.outcome import Outcome
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import (
    Attach,
    DeliverLocally,
    Detach,
    OfferEvents,
    Resolve,
    SubscriberOutcomes,
    WithdrawStream,
)
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.routing.routes import Routes
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow

S = b"s" * 16


def stub(source: bytes = S) -> Batch:
    return Batch.build(source, "films", 1, [b""], time_us=0, flags=FLAG_STREAM)


def anycast(*takers: bool) -> AnycastMachine:
    machine = AnycastMachine("a", Routes("a", 1), Random(1))
    for number, takes in enumerate(takers):
        machine.receive(Attach(Pattern("films"), "events", 1, f"p{number}", takes), number, 0.0)
    return machine


def test_a_stream_goes_only_to_subscribers_that_take_streams() -> None:
    machine = anycast(False, True, False, True)
    tried = []
    machine.receive(OfferEvents(stub(), "balanced", resend=True), HERE, 0.0)
    for _ in range(2):
        [hand] = [effect for effect in machine.take_effects() if isinstance(effect, DeliverLocally)]
        tried.append(hand.key)
        machine.receive(
            SubscriberOutcomes([DispositionRow("films", S, 1, 2, Outcome.RELEASED)]), hand.key, 0.0
        )
    assert tried == [1, 3]
    [resolve] = [effect for effect in machine.take_effects() if isinstance(effect, Resolve)]
    assert (resolve.fate.outcome, machine.records()) == (Outcome.RELEASED, 0)


def test_a_stream_that_waits_lets_plain_events_pass() -> None:
    machine = anycast(False, True)
    for number in range(2):
        machine.receive(OfferEvents(stub(bytes([number]) * 16), "balanced"), HERE, 0.0)
    plain = Batch.build(b"p" * 16, "films", 1, [b"x"], time_us=0)
    machine.receive(OfferEvents(plain, "balanced"), HERE, 0.0)
    hands = [effect.key for effect in machine.take_effects() if isinstance(effect, DeliverLocally)]
    assert (hands, machine.waiting()) == ([1, 0], 1)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_withdrawn_stream_is_nowhere_any_more(is_waiting: bool) -> None:
    machine = anycast(True)
    if is_waiting:
        machine.receive(OfferEvents(stub(b"o" * 16), "balanced"), HERE, 0.0)
    machine.receive(OfferEvents(stub(), "balanced", resend=True), HERE, 0.0)
    machine.take_effects()
    machine.receive(WithdrawStream("films", S, "given up"), "", 1.0)
    assert not [effect for effect in machine.take_effects() if isinstance(effect, Resolve)]
    machine.receive(SubscriberOutcomes([DispositionRow("films", S, 1, 2, Outcome.ACCEPTED)]), 0, 1.0)
    machine.receive(Detach(is_clean=True), 0, 1.0)
    machine.take_effects()
    assert (machine.records(), machine.held_bytes) == (0, 0)

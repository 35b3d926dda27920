"""The client's side of a subscription that shares events: no order, no gaps, and in doubt after a disconnection."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.outcome import Outcome
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import (
    Connected,
    DeliverBatches,
    Delivered,
    Disconnected,
    SendToNode,
    Subscriber,
)
from reknit.wire.messages import Credit, DispositionRow, Settle, Subscribe, Subscribed

SOURCE = b"s" * 16
STREAM = ("orders", SOURCE)


def batch(first: int, count: int = 1) -> Batch:
    return Batch.build(SOURCE, "orders", first, [b"x"] * count, time_us=0)


def shared(credit_bytes: int = 1 << 20) -> SharedSubscriber:
    plain = Subscriber(1, "orders", credit_bytes=credit_bytes)
    plain.receive(Connected("epoch"), "node", 0.0)
    machine = SharedSubscriber.taking_over(plain)
    machine.receive(Subscribed(1, 500, False, is_shared=True), "node", 0.0)
    machine.take_effects()
    return machine


def handed(machine: SharedSubscriber) -> list[tuple[int, int, int]]:
    return [
        (one.first, one.stop, one.attempt)
        for effect in machine.take_effects()
        if isinstance(effect, DeliverBatches)
        for one in effect.batches
    ]


def settled(machine: SharedSubscriber) -> list[DispositionRow]:
    machine.flush()
    found: list[DispositionRow] = []
    for effect in machine.take_effects():
        if isinstance(effect, SendToNode) and isinstance(effect.message, Settle):
            found += effect.message.rows
    return found


def test_events_are_delivered_as_they_arrive() -> None:
    machine = shared()
    for first, attempt in ((9, 1), (3, 1), (4, 2)):
        machine.receive(Delivered([batch(first)], -1, attempt), "node", 0.0)
    assert handed(machine) == [(9, 10, 1), (3, 4, 1), (4, 5, 2)]
    assert machine.lost == {}


def test_event_may_be_delivered_again_after_it_was_given_back() -> None:
    machine = shared()
    for _ in range(2):
        machine.receive(Delivered([batch(5)], -1), "node", 0.0)
        assert handed(machine) == [(5, 6, 1)]
        machine.settle(STREAM, 5, 6, Outcome.RELEASED)
        assert settled(machine) == [DispositionRow("orders", SOURCE, 5, 6, Outcome.RELEASED)]


def test_only_held_events_are_settled_and_once() -> None:
    machine = shared()
    machine.receive(Delivered([batch(1, 10)], -1), "node", 0.0)
    machine.extend(STREAM, 1, 3)
    machine.settle(STREAM, 1, 3, Outcome.ACCEPTED)
    machine.settle(STREAM, 3, 99, Outcome.ACCEPTED)
    machine.settle(STREAM, 1, 99, Outcome.RELEASED)
    assert settled(machine) == [
        DispositionRow("orders", SOURCE, 1, 3, Outcome.RECEIVED),
        DispositionRow("orders", SOURCE, 1, 11, Outcome.ACCEPTED),
    ]
    assert machine.in_hand() == []


def test_events_held_when_the_connection_broke_are_no_longer_its_own() -> None:
    machine = shared()
    machine.receive(Delivered([batch(1, 10)], -1), "node", 0.0)
    machine.receive(Disconnected(), "node", 1.0)
    machine.settle(STREAM, 1, 11, Outcome.ACCEPTED)
    machine.take_effects()
    machine.receive(Connected("epoch"), "node", 2.0)
    [again] = [effect.message for effect in machine.take_effects() if isinstance(effect, SendToNode)]
    assert isinstance(again, Subscribe)
    assert (again.held, again.start.position, again.start.history) == ([], None, False), "it takes part anew"


def test_credit_is_granted_again_as_the_application_takes_batches() -> None:
    one = batch(1)
    machine = shared(credit_bytes=2 * one.head.length)
    machine.receive(Delivered([one], -1), "node", 0.0)
    machine.take_effects()
    machine.taken(one.head.length)
    messages = [effect.message for effect in machine.take_effects() if isinstance(effect, SendToNode)]
    assert messages == [Credit(1, 3 * one.head.length)]

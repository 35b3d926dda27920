"""Live events that a subscriber gets from a cache instead: the node does not wait for their outcome."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.outcome import Outcome
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.wire.messages import Settle, Subscribe, Subscribed

SOURCE = b"s" * 16


def batch(start: int, stop: int) -> Batch:
    return Batch.build(SOURCE, "plant/a", start, [b"x"] * (stop - start), 0)


def live(limits: HoldLimits) -> subscribing.Subscriber:
    """A subscriber without a name that recovers, and got event 1."""
    recovery = recovering.Recovery((subscribing.NODE,), None, limits)
    made = subscribing.Subscriber(1, "plant/**", recovery=recovery)
    made.receive(subscribing.Connected("epoch"), "node", 0.0)
    made.receive(Subscribed(1, 0, False), "node", 0.0)
    made.receive(subscribing.Delivered([batch(1, 2)], 0), "node", 0.0)
    made.take_effects()
    return made


def settled(subscriber: subscribing.Subscriber) -> list[tuple[int, int, int]]:
    """The rows that it sends to the node."""
    return [
        (row.start, row.stop, row.outcome)
        for effect in subscriber.take_effects()
        if isinstance(effect, subscribing.SendToNode) and isinstance(effect.message, Settle)
        for row in effect.message.rows
    ]


def test_node_need_not_wait_for_events_that_came_from_a_cache_before() -> None:
    subscriber = live(HoldLimits())
    subscriber.receive(subscribing.Delivered([batch(5, 6)], 0), "node", 0.0)
    subscriber.receive(recovering.BatchesRecovered([batch(2, 5)]), subscribing.NODE, 0.1)
    subscriber.take_effects()
    subscriber.receive(subscribing.Delivered([batch(2, 5)], 0), "node", 0.2)
    assert settled(subscriber) == [(2, 5, Outcome.ACCEPTED)]


def test_node_need_not_wait_for_events_that_find_no_room_behind_a_gap() -> None:
    subscriber = live(HoldLimits(events_max=4))
    for start in (3, 5, 7, 9):
        subscriber.receive(subscribing.Delivered([batch(start, start + 2)], 0), "node", 0.0)
    rows = settled(subscriber)
    assert rows
    assert {outcome for *_, outcome in rows} == {Outcome.ACCEPTED}
    assert min(start for start, *_ in rows) > 3


def test_event_that_the_application_has_from_the_node_keeps_its_outcome() -> None:
    subscriber = live(HoldLimits())
    subscriber.receive(subscribing.Delivered([batch(1, 2)], 0), "node", 0.1)
    assert settled(subscriber) == []


def test_events_behind_a_gap_stay_with_the_subscriber_in_a_reconnection() -> None:
    """Seed 20473: the node did not know them after that, and an event that was given back never came again."""
    subscriber = live(HoldLimits())
    subscriber.receive(subscribing.Delivered([batch(5, 8)], 0), "node", 0.0)
    subscriber.receive(recovering.BatchesRecovered([batch(10, 12)]), subscribing.NODE, 0.1)
    subscriber.settle(("plant/a", SOURCE), 1, 2, Outcome.ACCEPTED)
    subscriber.take_effects()
    subscriber.receive(subscribing.Disconnected(), "node", 0.2)
    subscriber.receive(subscribing.Connected("epoch"), "node", 0.3)
    asked = [one.message for one in subscriber.take_effects() if isinstance(one, subscribing.SendToNode)]
    held = [
        (one.start, one.stop) for message in asked if isinstance(message, Subscribe) for one in message.held
    ]
    assert held == [(1, 2), (5, 8)]

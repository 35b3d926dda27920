"""Heartbeats on a node: passed on after the events that they announce."""

from __future__ import annotations

from reknit.protocol.effects import Send
from reknit.protocol.machine import JOURNAL
from reknit.protocol.recovery.heartbeat_forwarding import CaughtUp, HeartbeatForwarder
from reknit.topic import Pattern
from reknit.wire.recovery import Heartbeat
from tests.protocol.recovery.subscriptions import Subscription, opened
from tests.protocol.recovery.world import ANN, BOB, TOPIC


def test_a_heartbeat_waits_until_the_events_before_it_were_delivered() -> None:
    machine = HeartbeatForwarder(opened(Subscription(1, 4, Pattern("plant/*"))))
    machine.receive(Heartbeat(TOPIC, ANN, 7), 9, 0.0)
    assert machine.is_waiting
    assert machine.take_effects() == []
    machine.receive(CaughtUp(), JOURNAL, 0.1)
    assert machine.take_effects() == [Send(1, Heartbeat(TOPIC, ANN, 7, 4))]
    assert not machine.is_waiting
    machine.receive(CaughtUp(), JOURNAL, 0.2)
    assert machine.take_effects() == [], "once"


def test_only_the_last_heartbeat_of_each_series_is_passed_on() -> None:
    machine = HeartbeatForwarder(opened(Subscription(1, 4, Pattern("**"))))
    for source, seq in ((ANN, 1), (BOB, 5), (ANN, 3)):
        machine.receive(Heartbeat(TOPIC, source, seq), 9, 0.0)
    machine.receive(CaughtUp(), JOURNAL, 0.0)
    assert machine.take_effects() == [
        Send(1, Heartbeat(TOPIC, ANN, 3, 4)),
        Send(1, Heartbeat(TOPIC, BOB, 5, 4)),
    ]


def test_subscribers_that_are_durable_behind_or_elsewhere_get_none() -> None:
    machine = HeartbeatForwarder(
        opened(
            Subscription(1, 1, Pattern("**"), name="audit"),
            Subscription(2, 1, Pattern("**"), is_live=False),
            Subscription(3, 1, Pattern("office/**")),
        )
    )
    machine.receive(Heartbeat(TOPIC, ANN, 7), 9, 0.0)
    machine.receive(CaughtUp(), JOURNAL, 0.0)
    assert machine.take_effects() == []

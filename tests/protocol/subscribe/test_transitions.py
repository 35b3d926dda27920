"""Every state of a subscription knows what to do with every input about its connection."""

from __future__ import annotations

from itertools import product

import pytest

from reknit.protocol.machine import Connected, Disconnected
from reknit.protocol.subscribe.inputs import TRANSITIONS, WITHOUT_EFFECT, SubscriberState
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.wire.messages import Subscribed, Unsubscribed

INPUTS = (Connected, Disconnected, Subscribed, Unsubscribed)


def test_only_a_second_connection_is_illegal() -> None:
    unknown = [
        pair
        for pair in product(SubscriberState, INPUTS)
        if pair not in TRANSITIONS and pair not in WITHOUT_EFFECT
    ]
    assert unknown == [(state, Connected) for state in (SubscriberState.ASKING, SubscriberState.LIVE)]


def test_illegal_input_raises_and_changes_nothing() -> None:
    subscriber = Subscriber(1, "plant/**")
    subscriber.receive(Connected("epoch"), "node", 0.0)
    shared = SharedSubscriber.taking_over(subscriber)
    subscriber.take_effects()
    for machine in (subscriber, shared):
        with pytest.raises(ValueError, match="asking can't receive Connected"):
            machine.receive(Connected("epoch"), "node", 0.0)
        assert machine.state is SubscriberState.ASKING
        assert machine.take_effects() == []


def test_subscription_that_ended_stays_ended() -> None:
    subscriber = Subscriber(1, "plant/**")
    subscriber.receive(Unsubscribed(1, 10, "taken over"), "node", 0.0)
    subscriber.take_effects()
    subscriber.receive(Connected("epoch"), "node", 0.0)
    subscriber.receive(Subscribed(1, 0, False), "node", 0.0)
    assert subscriber.state is SubscriberState.ENDED
    assert subscriber.take_effects() == []

"""Publishers' heartbeats, passed on to subscribers, but not before the events that they announce can be delivered.

Heartbeat     it waits; a later one of the same series replaces it
CaughtUp      everything that came before is durable and dispatched: Send to every subscriber of its topic
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from reknit.ledger import Series
from reknit.protocol.effects import Send
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.recovery.subscription_view import SubscriptionViews
from reknit.wire.recovery import Heartbeat


class CaughtUp(msgspec.Struct, frozen=True):
    """Everything that publishers sent so far is durable, and was given to the subscribers."""


Input = Heartbeat | CaughtUp


class HeartbeatForwarder:
    """The heartbeats of all publishers at one node.

    Durable subscribers get none: the node is responsible for their gaps. A subscriber that is still behind gets the next
    one, when it has caught up.
    """

    def __init__(self, subscriptions: SubscriptionViews) -> None:
        self._subscriptions = subscriptions
        self._waiting: dict[Series, Heartbeat] = {}
        self.effects: list[Send] = []
        """What `take_effects` returns next."""

    @property
    def is_waiting(self) -> bool:
        """Whether `CaughtUp` would have an effect."""
        return bool(self._waiting)

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a publisher, or about the journal."""
        match message:
            case Heartbeat():
                self._waiting[message.topic, message.source] = message
            case CaughtUp():
                self._pass_on()
            case _:
                assert_never(message)

    def _pass_on(self) -> None:
        beats, self._waiting = self._waiting, {}
        for subscription in self._subscriptions.values():
            if subscription.is_live and not subscription.is_durable:
                self.effects += [
                    Send(subscription.peer, Heartbeat(beat.topic, beat.source, beat.seq, subscription.sub))
                    for beat in beats.values()
                    if subscription.pattern.matches(beat.topic)
                ]

    def tick(self, now: float) -> None:
        """Nothing has a deadline."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Send]:
        """The effects to perform, in order."""
        effects, self.effects = self.effects, []
        return effects


_MACHINE: type[Machine[Input, Send]] = HeartbeatForwarder

"""The subscriber's side of a subscription at its node: state, credit and outcomes. Every kind of subscriber has one."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.protocol.effects import SendToNode
from reknit.protocol.machine import Connected, Disconnected
from reknit.protocol.subscribe.credit_window import CreditWindow
from reknit.protocol.subscribe.inputs import (
    TRANSITIONS,
    WITHOUT_EFFECT,
    Effect,
    OutcomesStored,
    SubscriberState,
    SubscriptionEnded,
    SubscriptionOpened,
    SubscriptionOptions,
)
from reknit.protocol.subscribe.outcome_buffer import OutcomeBuffer
from reknit.wire.messages import HELD_MAX, Credit, Held, Holding, Start, Subscribe, Subscribed, Unsubscribed


class NodeSubscription:
    """The state, credit and outcomes of one subscription, and the effects that its subscriber wants."""

    def __init__(self, options: SubscriptionOptions, credit: CreditWindow | None = None) -> None:
        self.options = options
        self.state = SubscriberState.DISCONNECTED
        self.credit = credit or CreditWindow(options.credit_bytes)
        self.outcomes = OutcomeBuffer(options.sub)
        self.is_paused = False
        """Whether the application takes nothing for now…"""
        self._asked_paused = False
        """…and whether that was so when it asked for the subscription, without any credit then."""
        self._effects: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def change(self, message: Connected | Disconnected | Subscribed | Unsubscribed) -> bool:
        """Change the state; returns whether the input has an effect. Raises if no driver may give it in this state."""
        key = (self.state, type(message))
        state = TRANSITIONS.get(key)
        if state is not None:
            self.state = state
            return True
        if key in WITHOUT_EFFECT:
            return False
        raise ValueError(
            f"a subscription that is {self.state.value} can't receive {message!r}: disconnect it first"
        )

    def become(self, state: SubscriberState) -> None:
        """Continue in the state of a subscription that this one replaces."""
        self.state = state

    def subscribe(self, start: Start, held: list[Held]) -> None:
        """Ask the node for the subscription."""
        options, granted = self.options, self.credit.connect()
        self._asked_paused = self.is_paused
        while len(held) > HELD_MAX:
            self.emit(SendToNode(Holding(options.sub, held[:HELD_MAX])))
            held = held[HELD_MAX:]
        self.emit(
            SendToNode(
                Subscribe(
                    options.sub,
                    options.pattern,
                    options.name,
                    start,
                    0 if self._asked_paused else granted,
                    held,
                    options.is_cache,
                    options.takes_streams,
                    options.queue,
                    options.process,
                    options.order,
                )
            )
        )

    def opened(self, resumed: bool) -> None:
        """The node confirmed the subscription: resend messages that it may have missed, and grant credit."""
        self.outcomes.flush()
        for message in self.outcomes.unconfirmed():
            self.emit(SendToNode(message))
        if self.is_paused or self._asked_paused:
            self._send_credit(self.credit.granted)
        self.grant()
        self.emit(SubscriptionOpened(resumed))

    def ended(self, message: Unsubscribed) -> None:
        self.emit(SubscriptionEnded(message.code, message.text))

    def grant(self) -> None:
        """Grant the credit that has become free, if it is worth a message."""
        if self.state is SubscriberState.LIVE and self.credit.is_grant_due:
            self._send_credit(self.credit.grant())

    def pause(self, is_paused: bool) -> None:
        """Take nothing for now, or go on. A node that is away learns it when it is back."""
        self.is_paused = is_paused
        if self.state is SubscriberState.LIVE:
            self._send_credit(self.credit.granted)

    def paused_like(self, other: NodeSubscription) -> None:
        """Continue the pause of a subscription that this one replaces."""
        self.is_paused, self._asked_paused = other.is_paused, other._asked_paused

    def _send_credit(self, total: int) -> None:
        self.emit(SendToNode(Credit(self.options.sub, total, self.is_paused)))

    def delivered(self, batches: list[Batch], fresh: list[Batch], is_counted: bool) -> None:
        """Batches came, of which `fresh` goes to the application: the credit for the others is free again."""
        fresh_size = sum(batch.head.length for batch in fresh)
        if not is_counted:
            self.credit.deliver_recovered(fresh_size)
            return
        self.credit.deliver(fresh_size)
        size = sum(batch.head.length for batch in batches)
        if size > fresh_size:
            self.credit.drop(size - fresh_size)
            self.grant()

    def flush(self) -> int:
        """Send the outcomes that gathered, as one message; returns the number up to which all are sent."""
        message = self.outcomes.flush()
        if message is not None and self.state is SubscriberState.LIVE:
            self.emit(SendToNode(message))
        return self.outcomes.number

    def settled(self, number: int) -> None:
        """The node stored the outcomes up to a number."""
        self.outcomes.confirm(number)
        self.emit(OutcomesStored(number))

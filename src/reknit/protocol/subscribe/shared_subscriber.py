"""The subscriber's side of a subscription that shares events with others: each event goes to one of them.

None is missed and none is repeated here: a delivered event goes to the application, and its outcome goes back. When the
connection breaks, the events that the application has are in doubt, and no longer its own.

A member of a queue is durable, and its topics may be ordered. So after a lost connection it repeats what it accepted or
rejected: the node takes that, if nobody else has the event. And after an event of an ordered unit that it gives back, it
gives back the rest of the unit.

input           effects (the states and their transitions are in inputs.py)
Connected       SendToNode(Subscribe): it takes part again, and never resumes
Disconnected    none: everything that it has is dropped
Subscribed      SubscriptionOpened
Unsubscribed    SubscriptionEnded
Delivered       DeliverBatches
Settled         OutcomesStored
Lost            LossReport
Revoked         none: the events are another subscriber's now
of recovery     none: there is nothing to recover
"""

from __future__ import annotations

import msgspec

from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.ledger import Series
from reknit.outcome import Outcome
from reknit.protocol.disposition import Disposition
from reknit.protocol.machine import Connected, Disconnected, Machine, Peer
from reknit.protocol.series_seqs import SeriesSeqs
from reknit.protocol.subscribe.held_events import HeldEvents
from reknit.protocol.subscribe.inputs import (
    DeliverBatches,
    Delivered,
    Effect,
    Input,
    LossReport,
    SubscriberState,
)
from reknit.protocol.subscribe.node_subscription import NodeSubscription
from reknit.protocol.subscribe.retry_rules import RetryRules
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.seqset import SeqSet
from reknit.wire.messages import Lost, Revoked, Settled, Start, Subscribed, Unsubscribed


class SharedSubscriber:
    """Replaces a plain subscriber when the node says that its topics are shared."""

    def __init__(self, node: NodeSubscription) -> None:
        self.sub = node.options.sub
        self.pattern = node.options.pattern
        self.lost: dict[Series, SeqSet] = {}
        self.node = node
        self._held = HeldEvents()
        self._rules = RetryRules()
        self._arriving: dict[tuple[Series, int], int] = {}
        """By series and end of an ordered unit: the next seq of it that arrives."""
        self._unwanted = SeriesSeqs()
        """Events of ordered units that are on their way, and have to wait for one that was given back."""

    @classmethod
    def taking_over(cls, plain: Subscriber) -> SharedSubscriber:
        """Continue for a subscription that has just asked the node."""
        options = msgspec.structs.replace(plain.node.options, name="", is_cache=False)
        if not options.queue:
            options = msgspec.structs.replace(options, start=Start())
        node = NodeSubscription(options, plain.node.credit.without_buffer())
        node.become(plain.state)
        node.paused_like(plain.node)
        return cls(node)

    @property
    def state(self) -> SubscriberState:
        return self.node.state

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node, or about the connection to it."""
        node = self.node
        match message:
            case Delivered():
                self._deliver(message)
            case Settled(number=number):
                node.settled(number)
            case Connected():
                if node.change(message):
                    node.subscribe(node.options.start, [])
            case Disconnected():
                if node.change(message):
                    self._disconnected()
            case Subscribed():
                if node.change(message):
                    self._rules = RetryRules(message.handling, message.never)
                    node.opened(message.resumed)
            case Unsubscribed():
                if node.change(message):
                    node.ended(message)
            case Revoked(topic=topic, source=source, start=start, stop=stop):
                self._held.settle((topic, source), start, stop)
            case Lost(topic=topic, source=source, start=start, stop=stop, reason=reason):
                self.lost.setdefault((topic, source), SeqSet()).add(start, stop)
                node.emit(LossReport(topic, source, start, stop, reason))
                if node.options.queue:
                    node.outcomes.note_lost((topic, source), start, stop)
                    self.flush()
            case _:
                pass  # about recovery, which a shared subscription does not do

    def tick(self, now: float) -> None:
        """Send the outcomes that gathered."""
        self.flush()

    def next_deadline(self) -> float | None:
        return None

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        return self.node.take_effects()

    def _disconnected(self) -> None:
        self._held.clear()
        self._arriving.clear()
        self._unwanted.clear()
        self.node.credit.clear()
        if self.node.options.queue:
            self.node.outcomes.drop_given_back()
        else:
            self.node.outcomes.clear()

    # -- events

    def _deliver(self, message: Delivered) -> None:
        delivery = Delivery(message.attempt, message.counted, message.ordered_to)
        arrived = message.batches
        if message.ordered_to:
            arrived = [part for batch in arrived for part in self._wanted(batch, message.ordered_to)]
        batches = [batch.delivered(delivery) for batch in arrived]
        for batch in batches:
            self._held.deliver((batch.topic, batch.source), batch.first, batch.stop)
        if message.counted:
            self.node.delivered(message.batches, batches, is_counted=True)
        if batches:
            self.node.emit(DeliverBatches(batches))

    def _wanted(self, batch: Batch, ordered_to: int) -> list[Batch]:
        """A part of an ordered unit came: give back what has to wait; returns the rest."""
        series = (batch.topic, batch.source)
        self._arriving[series, ordered_to] = batch.stop
        if batch.stop >= ordered_to:
            del self._arriving[series, ordered_to]
        unwanted = SeqSet.from_ranges(self._unwanted.take(series, batch.first, batch.stop))
        for low, high in unwanted.ranges():
            self.node.outcomes.add(series, low, high, Disposition(Outcome.RELEASED))
        if unwanted:
            self.flush()
        return [batch.cut(*bounds) for bounds in unwanted.missing(batch.first, batch.stop)]

    def give_back_rest(self, series: Series, start: int, stop: int, attempt: int) -> None:
        """An event of an ordered unit was given back: those behind it wait for it, up to `stop`."""
        self.settle(series, start, stop, Outcome.RELEASED)
        arriving = self._arriving.get((series, stop), stop)
        if max(arriving, start) < stop:
            self._unwanted.add(series, max(arriving, start), stop)

    def taken(self, size: int) -> None:
        """The application took batches of this many bytes: there is room for more."""
        if self.node.credit.take(size):
            self.node.grant()

    def taken_recovered(self, size: int, now: float) -> None:
        """The application took batches that were recovered before the subscription was shared."""

    def in_hand(self) -> list[tuple[Series, int, int]]:
        """The events that were delivered and are not settled."""
        return self._held.held_ranges()

    def checkpoint(self) -> dict[str, int]:
        """Empty: nothing is in order here."""
        return {}

    def settled(self) -> dict[str, int]:
        """Empty as well."""
        return {}

    def is_ordered(self, topic: str) -> bool:
        """Whether the topic is ordered for durable subscribers, which this one is not."""
        return self._rules.of(topic).is_ordered

    # -- outcomes

    def settle(
        self,
        series: Series,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
        delay_s: float = 0.0,
        attempt: int = 0,
    ) -> bool:
        """The application settles `[start, stop)`; only events that it has count, and only once.

        Returns whether it had any.
        """
        said = Disposition(outcome, code, text, delay_s)
        held = self._held.held_within if outcome is Outcome.RECEIVED else self._held.settle
        owned = held(series, start, stop)
        for low, high in owned:
            self.node.outcomes.add_or_extend(series, low, high, said)
        return bool(owned)

    def extend(self, series: Series, start: int, stop: int) -> None:
        """The application processes these: they are not released to others from now on."""
        self.settle(series, start, stop, Outcome.RECEIVED)

    def pause(self, is_paused: bool) -> None:
        """Take nothing for now, or go on."""
        self.node.pause(is_paused)

    def flush(self) -> int:
        """Send the outcomes that gathered, as one message; returns the number up to which all are sent."""
        return self.node.flush()

    @property
    def is_settled(self) -> bool:
        """Whether the node has stored every outcome."""
        return self.node.outcomes.is_empty


_MACHINE: type[Machine[Input, Effect]] = SharedSubscriber

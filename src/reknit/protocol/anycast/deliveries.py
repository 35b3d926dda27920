"""Deliveries from start to end: the memory that they hold, their deadlines, and the report of their outcome."""

from __future__ import annotations

from enum import StrEnum
from random import Random

import msgspec

from reknit.backoff import Backoff
from reknit.event import FLAG_STREAM
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.delivery import GONE, HERE, AnycastDelivery, DeliveryTerms
from reknit.protocol.anycast.inputs import AttemptEnded, Effect, OfferEvents, Resolve
from reknit.protocol.anycast.joined_outcomes import JoinedOutcomes
from reknit.protocol.anycast.path import Path
from reknit.protocol.anycast.queues import Deadlines, ParkedDeliveries
from reknit.protocol.machine import Peer
from reknit.wire.outcomes import RangeOutcome


class LocalReason(StrEnum):
    """Why this node itself gave a delivery its outcome. The value is the text that the publisher reads."""

    NO_PATH = "there is no subscriber, or every subscriber released it"
    IN_DOUBT = "the path was lost while it was in flight; it may have been processed"
    NEVER_SENT = "it left before it was sent"
    EXPIRED = "its ttl ran out"


class Deliveries:
    """All deliveries of one node. Effects are collected here."""

    def __init__(self, name: str, backoff: Backoff, rng: Random) -> None:
        self._name = name
        self.parked = ParkedDeliveries(backoff, rng)
        self.deadlines = Deadlines()
        self.held_bytes = 0
        """Of events that were published here and are in memory: waiting, or sent and not settled."""
        self.effects: list[Effect] = []
        """What `take_effects` returns next."""

    def take_effects(self) -> list[Effect]:
        effects = self.effects.copy()
        self.effects.clear()  # the list stays the same: the machine has it, too
        return effects

    def emit(self, effect: Effect) -> None:
        """Emit an effect."""
        self.effects.append(effect)

    # -- beginning

    def begin(self, message: OfferEvents, upstream: Peer) -> AnycastDelivery:
        """Make a delivery of events that were offered."""
        head = message.batch.head
        terms = DeliveryTerms(
            topic=head.topic,
            source=head.source,
            origin=message.origin or self._name,
            mode=message.mode,
            keeps=message.keeps,
            deadline=message.deadline,
            attempts_before=message.attempts,
            is_stream=bool(head.flags & FLAG_STREAM),
            attempts_max=message.attempts_max,
        )
        delivery = AnycastDelivery(
            terms=terms,
            start=head.first,
            stop=head.stop,
            batch=message.batch,
            size=head.length,
            upstream=upstream,
            resend=message.resend or message.keeps,
            visited=frozenset((*message.visited, self._name)),
        )
        if upstream == HERE:
            self.held_bytes += delivery.size
        if message.deadline is not None:
            self.deadlines.add(message.deadline, delivery)
        return delivery

    def split(self, delivery: AnycastDelivery, at: int) -> AnycastDelivery:
        """Cut off the events from `at` on, and return them."""
        rest = delivery.split(at)
        if rest.terms.deadline is not None:
            self.deadlines.add(rest.terms.deadline, rest)
        return rest

    def unpark(self, delivery: AnycastDelivery) -> None:
        """It is tried again, along any path."""
        delivery.unpark(self._name)
        self.parked.removed()
        self.held_bytes += delivery.size

    # -- outcomes

    def attempt_ended(self, delivery: AnycastDelivery, path: Path, outcome: Outcome, text: str) -> None:
        """Report an attempt for the node's trail."""
        self.effects.append(
            AttemptEnded(
                topic=delivery.topic,
                source=delivery.source,
                start=delivery.start,
                stop=delivery.stop,
                path=path.name,
                sent_at=delivery.sent_at,
                outcome=outcome,
                text=text,
            )
        )

    def received(self, delivery: AnycastDelivery, fate: RangeOutcome, path: Path) -> None:
        """A subscriber works on it: upstream is told, unless it is one of several copies."""
        if delivery.join is None:
            if not fate.node:
                fate = msgspec.structs.replace(fate, node=self._name, path=path.name)
            self._report(delivery, fate)

    def _report(self, delivery: AnycastDelivery, fate: RangeOutcome) -> None:
        if delivery.upstream != GONE:
            self.effects.append(
                Resolve(
                    up=delivery.upstream,
                    topic=delivery.topic,
                    source=delivery.source,
                    fate=fate,
                    visited=sorted(delivery.visited),
                    keeps=delivery.terms.keeps,
                )
            )

    def finish(
        self,
        delivery: AnycastDelivery,
        outcome: Outcome,
        code: int,
        text: str,
        now: float,
        *,
        node: str = "",
        path: str = "",
    ) -> None:
        """It has an outcome: upstream is told, or this node tries again if it keeps the events."""
        if delivery.join is not None:
            fate = self._fate(delivery, outcome, code, text, node, path)
            self._finish_copy(delivery, delivery.join, fate, now)
        elif delivery.terms.keeps and _is_tried_again(delivery, outcome):
            self.held_bytes -= delivery.size
            self.parked.add(delivery, now)
        else:
            self._report(delivery, self._fate(delivery, outcome, code, text, node, path))
            self.end(delivery)

    def finish_without_path(self, delivery: AnycastDelivery, now: float) -> None:
        """No path takes it: there is none, or all have released it."""
        if delivery.terms.keeps and not delivery.is_released and delivery.join is None:
            self.held_bytes -= delivery.size
            self.parked.add_without_path(delivery)
        else:
            self.finish(delivery, Outcome.RELEASED, Code.UNAVAILABLE, LocalReason.NO_PATH.value, now)

    def _fate(
        self, delivery: AnycastDelivery, outcome: Outcome, code: int, text: str, node: str, path: str
    ) -> RangeOutcome:
        return RangeOutcome(
            delivery.start, delivery.stop, outcome, code, text, node or self._name, path, delivery.attempts
        )

    def _finish_copy(
        self, copy: AnycastDelivery, join: JoinedOutcomes, fate: RangeOutcome, now: float
    ) -> None:
        copy.end()
        if not join.add(fate):
            return
        rest = copy.parent
        for joined in join.joined():
            assert rest is not None, "the copies' outcomes cover all events"
            delivery, rest = rest, rest.split(joined.stop) if joined.stop < rest.stop else None
            delivery.join_attempts(joined.attempts)
            outcome = Outcome(joined.outcome)
            self.finish(delivery, outcome, joined.code, joined.text, now, node=joined.node, path=joined.path)

    def expire(self, delivery: AnycastDelivery) -> None:
        """Its ttl ran out."""
        text = LocalReason.EXPIRED.value
        fate = self._fate(delivery, Outcome.REJECTED, Code.DEADLINE_EXCEEDED, text, "", "")
        self._report(delivery, fate)
        self.end(delivery)

    def end(self, delivery: AnycastDelivery) -> None:
        """End it: nothing more happens to it here."""
        was_parked = delivery.is_parked
        delivery.end()
        if delivery.terms.deadline is not None:
            self.deadlines.ended()
        if was_parked:
            self.parked.removed()
        elif delivery.upstream == HERE:
            self.held_bytes -= delivery.size


def _is_tried_again(delivery: AnycastDelivery, outcome: Outcome) -> bool:
    """Whether there is another attempt at a delivery that nobody waits for."""
    return outcome == Outcome.RELEASED or (outcome == Outcome.MODIFIED and delivery.fail())

"""Deliveries from their beginning to their end: what they hold, until when, and who hears what became of them."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from reknit.event import FLAG_STREAM
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.inputs import Effect, Offered, Resolve, Tried
from reknit.protocol.anycast.state import GONE, HERE, Delivery, Join, Path
from reknit.protocol.anycast.waiting import Deadlines, Parked
from reknit.protocol.dispatch.retry import Retry
from reknit.protocol.machine import Peer
from reknit.wire.outcomes import Fate

NO_PATH: Final = "nobody subscribes to it who has not released it"


class Deliveries:
    """Where they begin and end on one node. What is to be done goes to `effects`."""

    def __init__(self, name: str, retry: Retry, rng: Random) -> None:
        self._name = name
        self.parked = Parked(retry, rng)
        self.deadlines = Deadlines()
        self.held_bytes = 0
        """Of events that were published here: in memory, because they wait or are on their way."""
        self.effects: list[Effect] = []

    def begin(self, message: Offered, up: Peer) -> Delivery:
        """A new one."""
        head = message.batch.head
        delivery = Delivery(
            head.topic, head.source, head.first, head.stop, message.batch, head.length, up,
            message.origin or self._name, message.mode, message.resend or message.keeps,
            frozenset((*message.visited, self._name)), message.keeps, message.deadline, before=message.attempts,
        )  # fmt: skip
        if head.flags and head.flags & FLAG_STREAM:
            delivery.is_stream = True
        if up == HERE:
            self.held_bytes += delivery.size
        if delivery.deadline is not None:
            self.deadlines.add(delivery.deadline, delivery)
        return delivery

    def split(self, delivery: Delivery, at: int) -> Delivery:
        """Cut off what comes from `at` on; gives that."""
        rest = delivery.split(at)
        if rest.deadline is not None:
            self.deadlines.add(rest.deadline, rest)
        return rest

    def unpark(self, delivery: Delivery) -> None:
        """It is tried again, along any path."""
        self.parked.remove(delivery)
        delivery.is_pinned, delivery.resend = False, True
        delivery.excluded, delivery.visited = frozenset(), frozenset((self._name,))
        self.held_bytes += delivery.size

    # -- what became of them

    def tried(self, delivery: Delivery, path: Path, outcome: Outcome, text: str) -> None:
        """An attempt ended."""
        self.effects.append(
            Tried(
                delivery.topic,
                delivery.source,
                delivery.start,
                delivery.stop,
                path.name,
                delivery.sent_at,
                outcome,
                text,
            )
        )

    def tell(self, delivery: Delivery, fate: Fate, path: Path | None) -> None:
        """Upstream hears of it."""
        if delivery.up == GONE:
            return
        if not fate.node:
            fate = msgspec.structs.replace(fate, node=self._name, path=path.name if path else "")
        visited = sorted(delivery.visited)
        self.effects.append(
            Resolve(delivery.up, delivery.topic, delivery.source, fate, visited, delivery.keeps)
        )

    def finish(
        self,
        delivery: Delivery,
        outcome: Outcome,
        code: int,
        text: str,
        now: float,
        node: str = "",
        path: str = "",
    ) -> None:
        """It has its outcome: upstream is told, unless this node is the one who wants it delivered."""
        fate = Fate(
            delivery.start, delivery.stop, outcome, code, text, node or self._name, path, delivery.tries
        )
        if delivery.join is not None:
            delivery.is_done = True
            if delivery.join.add(fate):
                self._finish_joined(delivery.join, now)
        elif delivery.keeps and outcome in (Outcome.RELEASED, Outcome.MODIFIED):
            self.held_bytes -= delivery.size
            self.parked.add(delivery, now, is_nobody=text is NO_PATH and not delivery.excluded)
        else:
            self.tell(delivery, fate, delivery.path)
            self.end(delivery)

    def _finish_joined(self, join: Join, now: float) -> None:
        rest: Delivery | None = join.parent
        for fate in join.joined():
            assert rest is not None, "the copies' outcomes cover the whole"
            delivery, rest = rest, rest.split(fate.stop) if fate.stop < rest.stop else None
            delivery.tries = fate.attempts
            outcome = Outcome(fate.outcome)
            self.finish(delivery, outcome, fate.code, fate.text, now, fate.node, fate.path)

    def expire(self, delivery: Delivery) -> None:
        """It is too old."""
        fate = Fate(
            delivery.start, delivery.stop, Outcome.REJECTED, Code.DEADLINE_EXCEEDED, "its ttl ran out",
            self._name, "", delivery.tries,
        )  # fmt: skip
        self.tell(delivery, fate, None)
        self.end(delivery)

    def end(self, delivery: Delivery) -> None:
        """Nothing more happens to it here."""
        delivery.is_done, delivery.is_waiting, delivery.path = True, False, None
        if delivery.deadline is not None:
            self.deadlines.ended()
        if delivery.is_parked:
            self.parked.remove(delivery)
        elif delivery.up == HERE:
            self.held_bytes -= delivery.size

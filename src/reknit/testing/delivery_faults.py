"""Deliveries that get lost, come twice, or come together with events that came before.

One connection to a node does none of that. A subscriber that also listens to a group, or that changes from one node to
another, has to expect it.
"""

from __future__ import annotations

from random import Random

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.testing.faults import FaultPlan
from reknit.testing.observed import ObservedSubscriber


class DeliveryFaults:
    """What happens to the deliveries of one run of a subscriber's program."""

    def __init__(
        self,
        machine: subscribing.Subscriber,
        seen: ObservedSubscriber,
        plan: FaultPlan,
        rng: Random,
        recovers: bool,
    ) -> None:
        self._machine = machine
        self._seen = seen
        self._plan = plan
        self._rng = rng
        self._recovers = recovers
        self._last: dict[Series, Batch] = {}

    def is_missed(self, item: subscribing.Delivered) -> bool:
        """Whether a delivery gets lost. Its window is free again, and the node waits for no outcome."""
        if self._seen.kind.durable or item.attempt > 1 or self._rng.random() >= self._plan.missed_share:
            return False
        met = self._machine.checkpoint()
        if not all(batch.source.hex() in met for batch in item.batches):
            return False  # nobody can know that events before the first one are missing
        self._machine.node.delivered(item.batches, [], item.counted)
        for batch in item.batches:
            self._seen.missed((batch.topic, batch.source), batch.first, batch.stop)
            self._machine.node.outcomes.accept((batch.topic, batch.source), batch.first, batch.stop)
        return True

    def before(self, item: subscribing.Delivered) -> subscribing.Delivered | None:
        """A delivery outside the credit that comes first: the events of the last batch, and of the next one."""
        if item.attempt > 1 or item.ordered_to or self._recovers or not self._plan.repeat_share:
            return None
        first = item.batches[0]
        last = self._last.get((first.topic, first.source))
        self._last.update({(batch.topic, batch.source): batch for batch in item.batches})
        if last is None or last.stop != first.first or not self.is_repeated():
            return None
        if last.columns() or first.columns():
            return None  # one batch has one time for all its events, and these had different ones
        return subscribing.Delivered([_joined(last, first)], -1, counted=False)

    def is_repeated(self) -> bool:
        """Whether a message comes twice."""
        return self._rng.random() < self._plan.repeat_share


def _joined(one: Batch, other: Batch) -> Batch:
    """The events of two batches, one behind the other, as one batch."""
    payloads = [bytes(payload) for batch in (one, other) for payload in batch.payloads()]
    ttl_ms, priority = other.head.ttl_ms, other.head.priority
    return Batch.build(
        one.source, one.topic, one.first, payloads, other.time_us, ttl_ms=ttl_ms, priority=priority
    )

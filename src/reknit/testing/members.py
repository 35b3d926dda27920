"""Programs that share a queue: the production machines, with applications that settle at random."""

from __future__ import annotations

from random import Random

from reknit.batch import Batch
from reknit.ledger import QUEUES, Series
from reknit.outcome import Outcome
from reknit.protocol.queues.members import Member
from reknit.protocol.queues.queue import Queue
from reknit.protocol.queues.shared_queue import SharedQueue, key_of
from reknit.protocol.subscribe.inputs import LossReport
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.queue_order import QueueOrder
from reknit.seqset import SeqSet
from reknit.testing.checks.deliveries import ended_events_stay_away, no_event_comes_twice
from reknit.testing.checks.rest import members_forget
from reknit.testing.clock import START_US
from reknit.testing.observed import ObservedSubscriber, SubscriberKind
from reknit.testing.subscribers import SubscriberProgram
from reknit.testing.world import World
from reknit.topic import Pattern
from reknit.wire.messages import Subscribed

QUEUE = "work"
ACCOUNT = QUEUES + QUEUE


class MemberProgram(SubscriberProgram):
    """A member of the queue of its node. It takes what it gets, and loses it with its connection."""

    meets_repeats = False
    machine: Subscriber | SharedSubscriber  # type: ignore[assignment]
    seen: ObservedMember

    def __init__(
        self, name: str, node: str, world: World, rng: Random, pattern: str, order: QueueOrder
    ) -> None:
        super().__init__(name, node, world, rng, pattern, durable=True, history=False)
        self._order: QueueOrder = order

    def make_machine(self) -> Subscriber:
        return self.world.parts.subscriber(
            1,
            self.pattern,
            credit_bytes=self.world.plan.credit_bytes,
            zero_us=START_US,
            queue=QUEUE,
            process=f"{self.name} {self.life}".encode(),
            order=self._order,
        )

    def observe(self) -> ObservedMember:
        kind = SubscriberKind(self.node, Pattern(self.pattern), durable=True, history=False)
        queue = self.world.witness.subscriber(ACCOUNT, kind)
        return ObservedMember(f"{self.name}.{self.life}", queue, has_leases=bool(self.world.plan.lease_s))

    def take(self, item: object) -> None:
        if isinstance(item, Subscribed) and isinstance(self.machine, Subscriber):
            self.machine = SharedSubscriber.taking_over(self.machine)
            self._application.continue_with(self.machine)
        super().take(item)

    def unlinked(self) -> None:
        self.seen.disconnected()
        self._application.drop()
        super().unlinked()

    def leave(self, forget: bool) -> None:
        """A queue is not forgotten with a member."""
        super().leave(forget=False)

    def judge_rest(self, queue: Queue | None) -> None:
        """Check that the machine is back at its resting size; `queue` is the one that it shares."""
        assert isinstance(queue, SharedQueue)
        assert isinstance(self.machine, SharedSubscriber)
        member: Member = queue.members[self.connection, 1]
        may_hang = bool(self.world.plan.lease_s and self.world.plan.hang)
        self.world.witness.blame_all(self.name, members_forget(self.name, self.machine, member, may_hang))

    @property
    def queue_key(self) -> tuple[object, int]:
        return key_of(ACCOUNT)

    @property
    def is_done(self) -> bool:
        return self.is_connected and self._application.is_idle and self.machine.is_settled


class ObservedMember(ObservedSubscriber):
    """What one process of a member saw. What all of them said and got together is in the queue's record."""

    checks = (ended_events_stay_away, no_event_comes_twice)

    def __init__(self, name: str, queue: ObservedSubscriber, has_leases: bool) -> None:
        super().__init__(name, queue.kind, queue.observer)
        self.queue = queue
        self._has_leases = has_leases
        self.said, self.failed, self.deaths = queue.said, queue.failed, queue.deaths
        self.crashed_at, self.told = queue.crashed_at, queue.told
        self.failures_stored = queue.failures_stored
        self.record.received, self.record.ended = queue.record.received, queue.record.ended
        self._own: dict[Series, SeqSet] = {}
        """The events that it settled on the present connection, on which it got them."""

    @property
    def account(self) -> ObservedSubscriber:
        return self.queue

    def opened(self) -> None:
        self.queue.opened()

    def disconnected(self) -> None:
        """What it has is in doubt: others may get it, and its outcomes may come too late."""
        self.record.process_ended()
        self._own.clear()

    def settled(self, series: Series, start: int, stop: int, outcome: Outcome) -> None:
        for bounds in self.record.held.get(series, SeqSet()).overlap(start, stop):
            self._own.setdefault(series, SeqSet()).add(*bounds)
        super().settled(series, start, stop, outcome)
        self.record.held.get(series, SeqSet()).discard(start, stop)

    def delivered(self, batch: Batch) -> None:
        super().delivered(batch)
        self._own.get((batch.topic, batch.source), SeqSet()).discard(batch.first, batch.stop)

    def reported_lost(self, report: LossReport, number: int) -> None:
        """The next member is told again of what the node does not know to have been told."""
        self.told.setdefault((report.topic, report.source), SeqSet()).add(report.start, report.stop)

    def outcome_stored(self, series: Series, start: int, stop: int, outcome: Outcome) -> None:
        """An outcome may have come too late: after its connection was lost, or after the lease had ended."""
        if not self._has_leases:
            for bounds in self._own.get(series, SeqSet()).overlap(start, stop):
                super().outcome_stored(series, *bounds, outcome)

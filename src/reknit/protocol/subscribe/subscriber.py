"""The subscriber's side of one subscription: every event once and in order, its outcome sent until it is stored.

It knows its next seq in every series, so that repeated events are dropped by a range check. It tells the node
what it holds, so that little is repeated at all.

input           effects (the states and their transitions are in inputs.py)
Connected       SendToNode(Subscribe) with what is held and where to resume
Disconnected    none
Subscribed      SendToNode for outcomes that were not confirmed; SubscriptionOpened
Unsubscribed    SubscriptionEnded
Delivered       DeliverBatches for what is new and in order; LossReport for a gap, or AskCache if it recovers
Settled         OutcomesStored
Lost            LossReport, or AskCache if another cache may have the events
Revoked         none: the events will be delivered again
of recovery     what protocol/recovery wants: DeliverBatches, AskCache, SurveyCache, LossReport
"""

from __future__ import annotations

from typing import assert_never

from reknit.batch import Batch
from reknit.delivery import RECOVERED, Delivery
from reknit.ledger import Series
from reknit.outcome import Outcome, Reason
from reknit.protocol.disposition import Disposition
from reknit.protocol.effects import SendToNode
from reknit.protocol.machine import Connected, Disconnected, Machine, Peer, earliest
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.search import AskCache
from reknit.protocol.subscribe.held_events import HeldEvents
from reknit.protocol.subscribe.inputs import (
    NODE,
    DeliverBatches,
    Delivered,
    Effect,
    Input,
    LossReport,
    OutcomesStored,
    SubscriberState,
    SubscriptionEnded,
    SubscriptionOpened,
    SubscriptionOptions,
)
from reknit.protocol.subscribe.node_subscription import NodeSubscription
from reknit.protocol.subscribe.passed_over import PassedOver
from reknit.protocol.subscribe.recovered_in_flight import RecoveredInFlight
from reknit.protocol.subscribe.resume_point import ResumePoint
from reknit.protocol.subscribe.series_progress import SeriesProgress
from reknit.queue_order import QueueOrder
from reknit.seqset import Range, SeqSet
from reknit.wire.messages import Held, Lost, Revoked, Settled, Start, Subscribed, Unsubscribed

__all__ = [
    "NODE", "Connected", "DeliverBatches", "Delivered", "Disconnected", "Effect", "Input", "LossReport",
    "OutcomesStored", "SendToNode", "Subscriber", "SubscriberState", "SubscriptionEnded", "SubscriptionOpened",
]  # fmt: skip

GIVEN_BACK = (Outcome.RELEASED, Outcome.FAILED, Outcome.MODIFIED)
GAP_REASON = str(Reason.GONE)


class Subscriber:
    """One subscription.

    >>> subscriber = Subscriber(1, "plant/**", credit_bytes=1024)
    >>> subscriber.receive(Connected("epoch"), "node", 0.0)
    >>> [type(effect.message).__name__ for effect in subscriber.take_effects()]
    ['Subscribe']
    """

    def __init__(
        self,
        sub: int,
        pattern: str,
        name: str = "",
        start: Start | None = None,
        credit_bytes: int = 8 << 20,
        recovery: recovering.Recovery | None = None,
        is_cache: bool = False,
        zero_us: int = 0,
        takes_streams: bool = False,
        confirms_losses: bool = True,
        queue: str = "",
        process: bytes = b"",
        order: QueueOrder = "",
    ) -> None:
        start = start or Start()
        self.sub = sub
        self.pattern = pattern
        self.name = name
        options = SubscriptionOptions(
            sub,
            pattern,
            name,
            start,
            credit_bytes,
            is_cache,
            takes_streams,
            confirms_losses,
            queue,
            process,
            order,
        )
        self.node = NodeSubscription(options)
        self._resume_point = ResumePoint(start)
        self._progress = SeriesProgress()
        self._held = HeldEvents()
        self._passed_over = PassedOver()
        self._recovery = recovery
        self._recovered = RecoveredInFlight(zero_us)

    @property
    def state(self) -> SubscriberState:
        return self.node.state

    @property
    def lost(self) -> dict[Series, SeqSet]:
        return self._progress.lost

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node, or about the connection to it."""
        match message:
            case Delivered():
                self._deliver(message, now)
            case Settled(number=number):
                self._passed_over.confirm(number)
                self.node.settled(number)
            case Connected(epoch=epoch):
                if self.node.change(message):
                    self._connect(epoch)
            case Disconnected():
                if self.node.change(message):
                    self._held.disconnected()
                    self._passed_over.disconnected()
                    self._tell_recovery(recovering.CacheUnreachable(), NODE, now)
            case Subscribed():
                if self.node.change(message):
                    self._recovered.use_rules(message.handling, message.never)
                    self._tell_recovery(recovering.CacheReachable(), NODE, now)
                    self._subscribed(message.position, message.resumed, now)
            case Unsubscribed():
                if self.node.change(message):
                    self.node.ended(message)
            case Revoked(topic=topic, source=source, start=start, stop=stop):
                self._held.revoke((topic, source), start, stop)
            case Lost(topic=topic, source=source, start=start, stop=stop, reason=reason):
                self._miss((topic, source), start, stop, reason, now)
            case _:
                self._tell_recovery(message, peer, now)

    def tick(self, now: float) -> None:
        """Send the outcomes that gathered, deliver recovered events that are due again, and continue to recover."""
        self.flush()
        self._deliver_all(self._recovered.tick(now))
        self._send_dead()
        if self._recovery is not None:
            self._recovery.tick(now)
            self._recover()

    def next_deadline(self) -> float | None:
        """When something that is recovered, or being recovered, is due."""
        due = [self._recovered.next_deadline()]
        due += [self._recovery.next_deadline()] if self._recovery is not None else []
        return earliest(due)

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        return self.node.take_effects()

    # -- connecting

    def _connect(self, epoch: str) -> None:
        self.flush()
        start = self._resume_point.connect(epoch, self.checkpoint(), bool(self.name))
        if self.name and not self._resume_point.is_new and self._resume_point.is_other_journal:
            self.node.outcomes.drop_given_back()
            self._held.forget_returning()
        held = [  # the node is not told the outcomes of recovered events, and must not wait for them
            Held(*series, *part)
            for series, *bounds in self._held.ranges()
            for part in self._recovered.seqs_of(series).missing(*bounds)
        ]
        held += [Held(row.topic, row.source, row.start, row.stop) for row in self.node.outcomes.all_rows()]
        if self._recovery is not None:
            held += [Held(*series, *bounds) for series, *bounds in self._recovery.held_live()]
        self.node.subscribe(start, held)

    def checkpoint(self) -> dict[str, int]:
        """{source as hex: the last seq that arrived}."""
        return self._progress.checkpoint()

    def settled(self) -> dict[str, int]:
        """{source as hex: the last seq before which the application has nothing left to settle}."""
        places = self.checkpoint()
        for (_, source), first in self._held.first_unsettled():
            places[source.hex()] = min(places[source.hex()], first - 1)
        return places

    def _subscribed(self, position: int, resumed: bool, now: float) -> None:
        if self._recovery is not None:
            if self._resume_point.is_new:
                self._recovery.start(now)
            elif self._resume_point.is_other_journal:
                self._recovery.look(now)  # another journal may lack the tail that the last one had
            self._recover()
        if self.name and self._resume_point.is_other_journal:
            self._passed_over.clear()
            self._progress.forget()  # that journal may not know the outcomes of what arrived, and delivers it again
        self._resume_point.open(position)
        # The node that we are connected to now may not know which events were given back before.
        self.node.outcomes.release_again(self._held.returning())
        self.node.opened(resumed)

    # -- deliveries

    def _deliver(self, message: Delivered, now: float) -> None:
        if self._recovery is not None and message.attempt == 1:
            self._deliver_in_order(self._recovery, message, now)
            return
        if message.attempt > 1 or (message.ordered_to and self.name):
            again = [part for batch in message.batches for part in self._take_again(batch)]
            fresh = self._turn_back(again, message.attempt) if message.ordered_to else again
        else:
            fresh = [new for batch in message.batches for new in self._order(batch)]
            self._resume_point.move(message.position)
        delivery = Delivery(message.attempt, message.counted, message.ordered_to)
        fresh = [batch.delivered(delivery) for batch in fresh]
        for batch in fresh:
            self._held.deliver((batch.topic, batch.source), batch.first, batch.stop)
            if message.attempt > 1:
                self._held.note_attempt(batch)
        self.node.delivered(message.batches, fresh, message.counted)
        if fresh:
            self.node.emit(DeliverBatches(fresh))

    def _order(self, batch: Batch) -> list[Batch]:
        """Drop events that arrived before; deliver those that continue or start a series, or were passed over."""
        series = (batch.topic, batch.source)
        expected = self._progress.next_of(series, 1 if self.name else batch.first)
        late: list[Batch] = []
        if batch.first < expected and self._passed_over:
            passed = self._passed_over.take(series, batch.first, min(batch.stop, expected))
            late = [batch.cut(*bounds) for bounds in passed]
        if batch.stop <= expected:
            return late
        if batch.first > expected:
            self._skip(series, expected, batch.first)
        if self._passed_over:
            self._passed_over.advance(series, self.node.outcomes.number + 1)
        self._progress.advance(series, batch.stop)
        return [*late, batch if batch.first >= expected else batch.cut(expected, batch.stop)]

    def _skip(self, series: Series, start: int, stop: int) -> None:
        """An event came before those of `[start, stop)`: a node ends events of durable subscribers itself."""
        if self.name:
            self._passed_over.note(series, start, stop, self.node.outcomes.number + 1)
        else:
            self._lose(series, start, stop, GAP_REASON)

    def _take_again(self, batch: Batch) -> list[Batch]:
        """The events of a repeated delivery that were given back; all others arrived already.

        A durable subscription may also get events that another process gave back, and events that others overtook.
        """
        series = (batch.topic, batch.source)
        ranges = self._held.redeliver(series, batch.first, batch.stop)
        if self.name:  # what the application has, or ended without the node having stored it, is known
            self._held.repeat(series, batch.first, batch.stop)
            known = self._held.held_of(series).union(self.node.outcomes.ended_of(series))
            ranges = known.missing(batch.first, batch.stop)
            if self.node.outcomes.end_again(series, batch.first, batch.stop):
                self.flush()
        if ranges:
            self._progress.advance(series, ranges[-1][1])
        return [batch.cut(low, high) for low, high in ranges]

    def _turn_back(self, batches: list[Batch], attempt: int) -> list[Batch]:
        """Give back events of an ordered delivery that come after one of it was given back; returns the others."""
        wanted: list[Batch] = []
        for batch in batches:
            series = (batch.topic, batch.source)
            unwanted = SeqSet.from_ranges(self._held.take_unwanted(series, batch.first, batch.stop))
            for bounds in unwanted.ranges():
                self._settle_delivered(series, *bounds, Disposition(Outcome.RELEASED, attempt=attempt))
            wanted += [batch.cut(*bounds) for bounds in unwanted.missing(batch.first, batch.stop)]
        self.flush()
        return wanted

    def _lose(self, series: Series, start: int, stop: int, reason: str) -> None:
        """Report a range as lost, once. Without a name, only events that have not arrived or were given back count."""
        returning = self._held.lose(series, start, stop)
        lost = [(start, stop)]
        if not self.name:
            expected = self._progress.next_of(series, start)
            lost = returning + ([(expected, stop)] if expected < stop else [])
        for bounds in self._progress.lose(series, lost):
            self.node.emit(LossReport(*series, *bounds, reason))
        if self.name:
            self._progress.pass_lost(series)
        else:
            self._progress.advance(series, stop)

    def taken(self, size: int) -> None:
        """The application took batches of this many bytes: there is room for more."""
        if self.node.credit.take(size):
            self.node.grant()

    # -- recovery

    def _deliver_in_order(self, recovery: recovering.Recovery, message: Delivered, now: float) -> None:
        """Deliver events without a gap; others are held until the gap before them is filled or lost."""
        self._resume_point.move(message.position)
        passed: list[Batch] = []
        for arrived in message.batches:
            batch = arrived if message.counted else arrived.delivered(RECOVERED)
            if message.counted:
                self.node.credit.deliver(batch.head.length)
            if recovery.arrive(batch, now):
                passed.append(batch)
            else:
                self._deliver_all(passed)
                passed = []
                self._recover()
        self._deliver_all(passed)

    def _deliver_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            series = (batch.topic, batch.source)
            self._progress.advance(series, batch.stop)
            if not batch.counted:
                self.node.credit.deliver_recovered(batch.head.length)
            self._held.deliver(series, batch.first, batch.stop)
        if batches:
            self.node.emit(DeliverBatches(batches))

    def _tell_recovery(self, message: recovering.Input, peer: Peer, now: float) -> None:
        """A subscription that does not recover has no use for these: nodes send heartbeats to every one."""
        if self._recovery is not None:
            self._recovery.receive(message, peer, now)
            self._recover()

    def _miss(self, series: Series, start: int, stop: int, reason: str, now: float) -> None:
        """The node can't deliver these. Another cache may have them."""
        if self._recovery is None or not self._recovery.caches:
            self._lose(series, start, stop, reason)
        else:
            # The application had these and gave them back: nobody searches for events that came.
            for bounds in self._progress.lose(series, self._held.lose(series, start, stop)):
                self.node.emit(LossReport(*series, *bounds, reason))
            self._progress.miss(series, stop, reason)
            self._recovery.miss(series, start, stop, now)
            self._recover()
        if self.name and self.node.options.confirms_losses:
            self.confirm_lost(series, start, stop)

    def confirm_lost(self, series: Series, start: int, stop: int) -> None:
        """Tell the node that it need not tell a durable subscriber of this loss again."""
        self.node.outcomes.note_lost(series, start, stop)
        self.flush()

    def _recover(self) -> None:
        """Perform the effects of recovery, in order."""
        assert self._recovery is not None
        for effect in self._recovery.take_effects():
            match effect:
                case recovering.ReleaseBatches(batches):
                    for batch in batches:
                        if not batch.counted:
                            self._recovered.deliver(batch)
                    self._deliver_all(batches)
                case recovering.HeldBatchesDropped(series, ranges, size):
                    self.taken(size)
                    self._leave_to_caches(series, ranges)
                case recovering.UnrecoverableGap(series, start, stop):
                    self._lose(series, start, stop, self._progress.reason_of(series, start, GAP_REASON))
                case AskCache() | recovering.SurveyCache():
                    self.node.emit(effect)
                case _:
                    assert_never(effect)
        self._recovery.pause(self.node.credit.is_full_of_recovered)

    def _leave_to_caches(self, series: Series, ranges: list[Range]) -> None:
        """The application has these from a cache, or will get them from one: the node need not wait for an outcome."""
        delivered = self._held.held_of(series).difference(self._recovered.seqs_of(series))
        for low, high in [part for bounds in ranges for part in delivered.missing(*bounds)]:
            self.node.outcomes.accept(series, low, high)
        self.flush()

    def taken_recovered(self, size: int, now: float) -> None:
        """The application took recovered batches of this many bytes: more can be recovered."""
        self.node.credit.take_recovered(size)
        if self._recovery is not None and self._recovery.pause(self.node.credit.is_full_of_recovered):
            self._recovery.resume(now)
            self._recover()

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

        Returns whether it had any. Giving back an attempt means nothing for events that came again since.
        """
        outcomes = self.node.outcomes
        if outcome.is_final and self._held.has_revoked(series):
            # Late, but done: the node accepts that if nobody else has the event by then.
            for low, high in self._held.end_revoked(series, start, stop):
                outcomes.add(series, low, high, Disposition(outcome, code, text))
        owned = self._held.settle_attempt(series, start, stop, 0 if outcome.is_final else attempt)
        is_recovered = self._recovered.has(series)
        if outcome is Outcome.ACCEPTED and not is_recovered:  # the usual way
            for low, high in owned:
                outcomes.accept(series, low, high)
            return bool(owned)
        said = Disposition(outcome, code, text, delay_s, 0 if outcome.is_final else attempt)
        delivered = owned
        if is_recovered:
            delivered = [part for bounds in owned for part in self._recovered.settle(series, *bounds, said)]
            self._send_dead()
        for low, high in delivered:
            self._settle_delivered(series, low, high, said)
        return bool(owned)

    def give_back_rest(self, series: Series, start: int, stop: int, attempt: int) -> None:
        """Give back the rest of an ordered delivery, behind an event that was given back: also what is on its way."""
        self._held.turn_back(series, start, stop, self._progress.next_of(series, start))
        self.settle(series, start, stop, Outcome.RELEASED, attempt=attempt)

    def _settle_delivered(self, series: Series, start: int, stop: int, said: Disposition) -> None:
        """The outcome of events that the node delivered."""
        if said.outcome is Outcome.ACCEPTED:
            self.node.outcomes.accept(series, start, stop)
            return
        if said.outcome not in GIVEN_BACK:
            self.node.outcomes.add(series, start, stop, said)
            return
        self._held.give_back(series, start, stop)
        repeated = self._held.take_repeated(series, start, stop)
        for bounds in repeated.ranges():
            self.node.outcomes.add(series, *bounds, said._replace(attempt=0))
        for bounds in repeated.missing(start, stop):
            self.node.outcomes.add(series, *bounds, said)

    def _send_dead(self) -> None:
        """Recovered events become dead letters too: each batch in a message of its own, as it may be long."""
        for dead in self._recovered.take_dead():
            self.node.outcomes.reject_recovered(dead.batch, str(dead.reason), dead.code, dead.text)
            self.flush()

    def extend(self, series: Series, start: int, stop: int) -> None:
        """The application still processes these: their lease starts again."""
        for low, high in self._held.held_within(series, start, stop):
            self.node.outcomes.add(series, low, high, Disposition(Outcome.RECEIVED))

    def is_ordered(self, topic: str) -> bool:
        """Whether the topic is ordered for durable subscribers, which this one is not."""
        return not self.name and self._recovered.rules.of(topic).is_ordered

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


_MACHINE: type[Machine[Input, Effect]] = Subscriber

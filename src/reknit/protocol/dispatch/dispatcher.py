"""The dispatcher: every subscriber gets every matching event at least once, or a dead letter says why not.

Steps 7 and 8 of an event's way. A subscriber's queue is a cursor over the journal; events beyond its credit stay in
the journal and cost nothing here. Outcomes come back as ranges and go into the journal's ledger.

input               from         effects
OpenSubscription    subscriber   Send(Subscribed), or AppendRecord first if its account is new; deliveries;
                                 AppendRecord or DeadLetter for the event that an earlier process died of
Credit              subscriber   deliveries within the new total
Settle              subscriber   AppendRecord, DeadLetter; Send(Settled) once that is durable; deliveries
Unsubscribe         subscriber   Send(Unsubscribed); AppendRecord first if it is to be forgotten
EndSubscription     the node     Send(Unsubscribed), with the reason
PeerLeft            connection   none: its queues are dropped, durable subscribers are owed the rest
PeerBlocked         connection   deliveries when it is over
JournalGrown        journal      deliveries to live queues; DeadLetter or Withhold at a queue's limit
JournalScanned      journal      deliveries to the queue that is behind, or another Scan
JournalTrimmed      journal      AppendRecord and Send(Lost) for what can't be delivered any more
JournalDamaged      journal      the same
MadeDurable         journal      Send for everything that waited for it
EventsGone          driver       AppendRecord and Send(Lost)
EventsExpired       driver       DeadLetter
CreditCorrection    driver       deliveries if there is room after all
SetPaused           operator     AppendRecord, Send(Answer); deliveries of what was resumed

"Deliveries" are DeliverRuns, Redeliver and Scan. Credit, Settle and Unsubscribe for a subscription that does not exist
have no effect: they crossed the end of the subscription on the way, and its events are still owed.

Files: subscribers (connections and accounts), crashes (processes that died), delivery_pump (from the journal),
redelivery (lanes and retries), settlement (outcomes and leases), outcome_recorder, expiry (ttl), overflow (limits of
queues), losses (retention), pauses, rules. The queues that they work on are in `protocol/queues/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from random import Random
from typing import Final, assert_never

from reknit.batch import Batch
from reknit.entries import Run
from reknit.ledger import Account, Held, Ledger, Series
from reknit.outcome import Code, Reason
from reknit.protocol.dispatch.crashes import Crashes
from reknit.protocol.dispatch.delivery_pump import SCAN_BYTES, DeliveryPump
from reknit.protocol.dispatch.expiry import Expiry
from reknit.protocol.dispatch.inputs import (
    CreditCorrection,
    EndSubscription,
    EventsExpired,
    EventsGone,
    JournalDamaged,
    JournalGrown,
    JournalScanned,
    JournalTrimmed,
    OpenSubscription,
    PeerBlocked,
    SetPaused,
)
from reknit.protocol.dispatch.losses import Losses
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.overflow import Overflow, QueueLoad
from reknit.protocol.dispatch.pauses import Pauses
from reknit.protocol.dispatch.redelivery import Redelivery
from reknit.protocol.dispatch.rules import DispatchRules
from reknit.protocol.dispatch.settlement import DispatchSettlement
from reknit.protocol.dispatch.state import DispatchState, Effect
from reknit.protocol.dispatch.subscribers import Subscribers
from reknit.protocol.effects import Redeliver, Scan
from reknit.protocol.machine import JOURNAL, Machine, MadeDurable, Peer, PeerLeft, earliest
from reknit.protocol.queues.queue import Queue, QueueKey
from reknit.protocol.queues.registry import QueueRegistry
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.protocol.ttl import overdue_of
from reknit.records import Record, TopicPaused, TopicResumed
from reknit.seqset import Range, SeqSet
from reknit.wire.messages import Answer, Credit, Holding, Message, Settle, Unsubscribe

FLOOR_S: Final = 5.0
"""How often a durable subscriber's floor is recorded without an outcome."""
SWEEP: Final[QueueKey] = (JOURNAL, -1)
"""The key of scans through the events that were in the journal when this node started."""

Input = (
    CreditCorrection | Credit | EndSubscription | EventsExpired | EventsGone | Holding | JournalDamaged | JournalGrown
    | JournalScanned | JournalTrimmed | MadeDurable | OpenSubscription | PeerBlocked | PeerLeft | SetPaused | Settle
    | Unsubscribe
)  # fmt: skip


class Dispatcher:
    """All subscribers of one node."""

    def __init__(
        self,
        ledger: Ledger,
        end: int,
        next_number: Callable[[], int],
        rng: Random,
        rules: DispatchRules | None = None,
        zero_us: int = 0,
        first_held: Callable[[str, bytes], int] | None = None,
        start: int = 0,
        paused: Set[str] = frozenset(),
        deferred: Callable[[], Iterable[Record]] = tuple,
    ) -> None:
        rules = rules or DispatchRules()
        self.pauses = Pauses(paused)
        self._state = state = DispatchState(
            ledger, end, next_number, rng, rules, self.pauses, zero_us, deferred
        )
        self.effects = state.effects
        """What `take_effects` returns next."""
        self.overflow = Overflow(rules, ledger)
        self.recorder = OutcomeRecorder(state, self.overflow)
        self.expiry = Expiry(state, self.recorder)
        self._redelivery = Redelivery(state)
        self._pump = DeliveryPump(state, self.recorder, self.expiry, self._redelivery)
        self.settlement = DispatchSettlement(state, self.recorder, self._pump, self._redelivery)
        self._losses = Losses(state, self.recorder, first_held or (lambda topic, source: 1), start)
        crashes = Crashes(state, self.recorder)
        self.subscribers = Subscribers(
            state, self.recorder, self._pump, self.settlement, self._losses, self.overflow, crashes
        )
        floors = [account.floor for account in ledger.accounts.values()]
        self._sweep = max(min(floors, default=end), start)
        """The next position to sweep. A sweep notes ttls and sizes of events that were in the journal at the start."""
        self._sweep_to = end
        self._floor_due: float | None = None
        self._paused_number = 0
        """The number of the last record about topics that are paused."""
        self._judge_queues()

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a subscriber, from the journal, or from an operator."""
        self._state.at(now)
        match message:
            case JournalGrown(runs=runs, end=end):
                self._grow(runs, end)
            case Credit(sub=sub):
                self._credit((peer, sub), message)
            case Settle():
                self.settlement.settle(message, peer)
                if self.overflow.is_on:
                    self._judge_queues()
            case MadeDurable(number=number):
                self._state.made_durable(number)
                self.settlement.confirm(number)
                self.subscribers.made_durable(number)
            case JournalScanned(key=key, run=run):
                if key == SWEEP:
                    self._swept(run)
                else:
                    self._losses.pass_over(key, run.lost)
                    self._pump.scanned(key, run)
            case CreditCorrection(key=key, difference=difference):
                self._correct_credit(key, difference)
            case Holding(sub=sub, held=held):
                self.subscribers.hold((peer, sub), held)
            case OpenSubscription():
                self.subscribers.open(message, peer)
                self._floor_due = self._floor_due or now + FLOOR_S
            case Unsubscribe(sub=sub, forget=forget):
                self.subscribers.unsubscribe((peer, sub), forget)
            case EndSubscription(sub=sub, code=code, text=text):
                self.subscribers.end((peer, sub), code, text)
            case PeerBlocked(is_blocked=is_blocked):
                self._block(peer, is_blocked)
            case PeerLeft(is_abrupt=is_abrupt):
                self.subscribers.leave(peer, is_abrupt)
            case JournalTrimmed():
                self._trim(message)
            case JournalDamaged(lost=lost):
                self._losses.damage(lost)
            case EventsGone():
                self._losses.lose_gone(message)
            case EventsExpired():
                self.expiry.expire_in_flight(message)
            case SetPaused():
                self._set_paused(message, peer)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Retry events that are due, end expired leases and events, and record floors that moved."""
        state = self._state
        state.at(now)
        self.subscribers.tick()
        self.expiry.tick()
        for queue in list(state.queues.scheduled()):
            self.settlement.end_leases(queue)
            if isinstance(queue, SharedQueue):
                queue.grow()
            self._deliver(queue)
        if self._sweep < self._sweep_to:
            state.emit(Scan(SWEEP, self._sweep, SCAN_BYTES))
        if self._floor_due is not None and now >= self._floor_due:
            self._floor_due = now + FLOOR_S if state.queues.by_name else None
            self.recorder.record_floors()
        self._judge_queues()

    def next_deadline(self) -> float | None:
        """The time of the next retry, end of a lease, expiry, or floor to record."""
        due = [self._floor_due, self.expiry.next_due()]
        for queue in self._state.queues.scheduled():
            due.append(None if queue.leases is None else queue.leases.next_due())
            due.append(queue.lanes.next_due())
            if queue.has_room:
                due.append(queue.retries.next_due())
            if isinstance(queue, SharedQueue):
                due.append(queue.next_growth())
        if self._sweep < self._sweep_to or self.subscribers.is_due:
            due.append(self._state.now)
        return earliest(due)

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        return self._state.take_effects()

    def put_back_effects(self, effects: list[Effect]) -> None:
        """Put back effects that were taken, after those that were emitted since."""
        self._state.put_back_effects(effects)

    def send_when_durable(self, number: int, peer: Peer, message: Message) -> None:
        """Send a message when the append with this number is durable."""
        self._state.send_when_durable(number, peer, message)

    def confirm_after(self, number: int, peer: Peer, sub: int) -> None:
        """The next `Settle` of a subscription is confirmed when the append with this number is durable, or later."""
        self.settlement.confirm_after(number, (peer, sub))

    # -- questions

    @property
    def queues(self) -> Mapping[QueueKey, Queue]:
        """Every queue once. One with members has a key of its own."""
        return self._state.queues.by_key

    @property
    def registry(self) -> QueueRegistry:
        """The same, to be found by their subscriptions, too."""
        return self._state.queues

    def has_subscriber(self, topic: str) -> bool:
        """Whether somebody is subscribed to just this topic. Others, with a wider pattern, only observe it."""
        return any(queue.pattern.is_topic for queue in self._state.queues.matching(topic))

    def in_hand(self) -> dict[str, dict[Series, SeqSet]]:
        """By connected durable subscriber: the events that its queue knows and that have not ended."""
        state = self._state
        return {name: queue.in_hand(state.ledger.published) for name, queue in state.queues.by_name.items()}

    def held_by(self, name: str) -> Held | None:
        """The same for one subscriber and series; None if it is not connected."""
        queue, published = self._state.queues.named(name), self._state.ledger.published
        if queue is None:
            return None
        return lambda series: queue.in_hand_of(series, published.get(series, SeqSet()))

    def overdue(self, effect: Redeliver, batches: list[Batch]) -> list[Range]:
        """The events of a retry that are past their ttl: it ran out while a subscriber had them."""
        state = self._state
        if (effect.peer, effect.sub) not in state.queues:
            return []
        default_ms = state.rules.of(effect.topic).ttl_ms
        return [part for batch in batches for part in overdue_of(batch, default_ms, state.time_us)]

    # -- credit, and connections

    def _deliver(self, queue: Queue) -> None:
        self._redelivery.retry_due(queue)
        self._pump.pump(queue)

    def _credit(self, key: QueueKey, message: Credit) -> None:
        queue = self._state.queues.get(key)
        if queue is None:
            return
        goes_on = queue.credit.pause(message.is_paused)
        if queue.credit.grant(message.total) or goes_on:
            self._deliver(queue)

    def _correct_credit(self, key: QueueKey, difference: int) -> None:
        queue = self._state.queues.get(key)
        if queue is not None:
            queue.credit.use(difference)
            if difference <= 0:  # there may be room after all
                self._deliver(queue)

    def _block(self, peer: Peer, is_blocked: bool) -> None:
        for key in self._state.queues.of_peer(peer):
            queue = self._state.queues[key]
            queue.credit.block(is_blocked)
            self._deliver(queue)

    # -- the journal

    def _grow(self, runs: list[Run], end: int) -> None:
        has_ttl = self._state.rules.has_ttl
        if self.overflow.is_on:
            self._count(runs)
        for run in runs:
            if run.lost:
                for key in [queue.key for queue in self.queues.values() if queue.is_live]:
                    self._losses.pass_over(key, run.lost)
            for index, entry in enumerate(run.entries):
                head = entry.head
                if has_ttl or head.ttl_ms or head.flags:
                    self._note_ttl(run, index)
        self._pump.grow(runs, end)
        if self.overflow.is_on:
            if self._end_excess(runs):
                self._deliver_ready()
            self._judge_queues()

    def _note_ttl(self, run: Run, index: int) -> None:
        if self._state.ledger.accounts and self.expiry.has_ttl(run.entries[index].head):
            self.expiry.note(run, index)

    def _swept(self, run: Run) -> None:
        """Note the ttl and the size of events that were in the journal when this node started."""
        for index, entry in enumerate(run.entries):
            if entry.position < self._sweep_to:
                self._note_ttl(run, index)
                for load in self.overflow.loads(entry.head.topic) if self.overflow.is_on else ():
                    self.overflow.swept(load, entry.head)
        self._sweep = max(run.next_position, self._sweep + 1)

    def _trim(self, message: JournalTrimmed) -> None:
        self._pump.trim(message.start)
        self._losses.trim(message.start, message.removed, message.reason)
        self._deliver_ready()

    def _deliver_ready(self) -> None:
        """Events ended: others that waited for them, or behind them, continue."""
        for queue in [
            queue for queue in self.queues.values() if queue.lanes.is_ready or queue.cursor.can_read
        ]:
            self._deliver(queue)

    @property
    def repeats(self) -> tuple[int, int]:
        """How many events subscribers released, and how many were delivered again, since the node started."""
        return self._state.released, self._state.redelivered

    # -- limits of queues

    def _count(self, runs: list[Run]) -> None:
        for head in [entry.head for run in runs for entry in run.entries]:
            for load in self.overflow.loads(head.topic):
                self.overflow.came(load, head)

    def _end_excess(self, runs: list[Run]) -> bool:
        """Make dead letters of events that are too many: the newest of these, or the oldest that wait.

        Returns whether there were any.
        """
        text, is_any = "too many events wait for the subscriber", False
        for head in [entry.head for run in reversed(runs) for entry in reversed(run.entries)]:
            for load in self.overflow.loads(head.topic):
                too_many = self.overflow.excess(load, head)
                account = self._state.account(load.name) if too_many else None
                if account is None:
                    continue
                is_any = True
                if self._state.rules.of(head.topic).overflow == "refuse_newest":
                    newest = (max(head.first, head.stop - too_many), head.stop)
                    series = (head.topic, head.source)
                    why = f"{text}: the newest is refused"
                    self.expiry.end_waiting(account, series, [newest], 0, Reason.EGRESS_FULL, why)
                else:
                    self._drop_oldest(load, account, too_many, f"{text}: the oldest is dropped")
        return is_any

    def _drop_oldest(self, load: QueueLoad, account: Account, too_many: int, text: str) -> None:
        """Make dead letters of the oldest events that still wait, until few enough are left."""
        while too_many > 0 and (found := self.overflow.oldest(load)) is not None:
            series, (start, stop) = found
            cut = min(stop, start + too_many)
            too_many -= self.expiry.end_waiting(account, series, [(start, cut)], 0, Reason.EGRESS_FULL, text)
            if cut < stop:
                self.overflow.put_back(load, series, (cut, stop))

    def _judge_queues(self) -> None:
        if self.overflow.is_on and (withhold := self.overflow.judge()) is not None:
            self._state.emit(withhold)

    # -- pause and resume

    def _set_paused(self, message: SetPaused, peer: Peer) -> None:
        """Pause or resume the topics that a pattern matches; confirmed when that is durable."""
        state, pattern = self._state, message.pattern
        record: TopicPaused | TopicResumed
        if message.is_paused:
            is_changed = self.pauses.pause(pattern)
            record = TopicPaused(pattern, state.time_us)
        else:
            is_changed = self.pauses.resume(pattern)
            record = TopicResumed(pattern, state.time_us)
        body = {"paused": self.pauses.patterns, "changed": is_changed}
        if is_changed:
            self._paused_number = state.append(record)
        if self._paused_number > state.durable_number:
            state.send_when_durable(self._paused_number, peer, Answer(message.id, Code.OK, "", body))
        else:
            state.send(peer, Answer(message.id, Code.OK, "", body))
        for queue in list(self.queues.values()):
            queue.lanes.look_at_all()
            self._deliver(queue)


_MACHINE: type[Machine[Input, Effect]] = Dispatcher

"""The part of a node that decides and does no I/O: its machines, its journal, and the machines' effects.

The asyncio node and the simulator run the same core, so the simulator tests the code that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import Gone, JournalError
from reknit.frame import Buffer
from reknit.node.core.core_quotas import CoreQuotas
from reknit.node.core.dead_letter_admin import DeadLetterAdmin
from reknit.node.core.dead_letter_guard import DeadLetterGuard
from reknit.node.core.dead_letters import DeadLetters
from reknit.node.core.delivery_frames import DeliveryFrames
from reknit.node.core.failures import EffectPerformer
from reknit.node.core.journal_tail import JournalTail
from reknit.node.core.journal_writer import JournalWriter
from reknit.node.core.openings import Openings
from reknit.node.core.orders import AdminOrders
from reknit.node.core.parts import Parts
from reknit.node.core.recovery import CoreRecovery
from reknit.node.core.recovery import Effect as RecoveryEffect
from reknit.node.core.redelivery import RedeliverySender
from reknit.node.core.responses import Responses
from reknit.node.core.retention import CoreRetention
from reknit.node.core.scheduling import Scheduling
from reknit.node.core.shell import Edge, Shell
from reknit.node.core.source_owners import SourceOwners
from reknit.outcome import Code
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import (
    EndSubscription,
    JournalDamaged,
    JournalGrown,
    JournalScanned,
    PeerBlocked,
)
from reknit.protocol.dispatch.rules import DispatchRules
from reknit.protocol.effects import (
    Append,
    AppendRecord,
    DeadLetter,
    DeliverRuns,
    Fail,
    Mark,
    Redeliver,
    Scan,
    Send,
    Withhold,
)
from reknit.protocol.links.inputs import EventsRemoved
from reknit.protocol.machine import JOURNAL, MadeDurable, NextTurn, Peer, PeerJoined, PeerLeft, earliest
from reknit.protocol.publish.admission import IsOfNode, Refusal
from reknit.protocol.publish.inputs import (
    QueuesFull,
    RefusedBatch,
    ResumeIntake,
    StopIntake,
    StoredForLater,
)
from reknit.protocol.publish.intake import Intake
from reknit.protocol.queues.queue import QueueKey
from reknit.protocol.routing.routes import SourceDeclared, SubscriptionsChanged
from reknit.protocol.rpc.open_requests import Respond
from reknit.store.journal import Journal
from reknit.wire.codec import Frames, encode
from reknit.wire.messages import (
    Ask,
    Credit,
    Declare,
    Holding,
    Message,
    Settle,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)

Input = Frames | Declare | Credit | Holding | Settle | Unsubscribe | Subscribe
Effect = (
    Append
    | AppendRecord
    | DeadLetter
    | DeliverRuns
    | Fail
    | Mark
    | Redeliver
    | RefusedBatch
    | Respond
    | Scan
    | Send
    | StoredForLater
    | Withhold
    | RecoveryEffect
)


class HasEffects(Protocol):
    """A machine, as the core asks it again and again."""

    @property
    def effects(self) -> Sequence[Effect]:
        """What `take_effects` returns next."""

    def take_effects(self) -> Sequence[Effect]:
        """The effects to perform, in order."""


class Core:
    """One node without its sockets, threads and clock. After every input, call `run`."""

    def __init__(
        self,
        name: str,
        epoch: str,
        journal: Journal,
        config: Config,
        shell: Shell,
        rng: Random,
        *,
        now_us: Callable[[], int],
        zero_us: int = 0,
        edge: Edge | None = None,
        is_elsewhere: Callable[[str], bool] = lambda topic: False,
        queue_elsewhere: Callable[[str], str] = lambda name: "",
        is_of_node: IsOfNode = lambda peer: False,
        quotas: CoreQuotas | None = None,
    ) -> None:
        self.epoch = epoch
        self.journal = journal
        self.config = config
        self._shell = shell
        self.now_us = now_us
        self._edge = edge
        self._is_elsewhere = is_elsewhere
        """Whether another node subscribes to a topic, as far as this one knows."""
        limits = config.limits
        published = journal.ledger.published
        stored = {source: seqs.last for (_, source), seqs in published.items() if seqs}
        permit = None if edge is None else edge.permit
        self.intake = Intake(
            stored,
            limits.sources_max,
            limits.batch_events_max,
            permit,
            self.inspect,
            limits.topic_bytes_max,
            is_of_node,
            None if quotas is None else quotas.publishing,
        )
        self.quotas = quotas
        self.responses = Responses(name, journal, config, zero_us, now_us)
        self.intake.set_clock(zero_us, limits.future_s_max)
        rules, held = DispatchRules.from_config(config), (journal.first_held, journal.start, journal.paused)
        self.dispatch = Dispatcher(
            journal.ledger,
            journal.end,
            self.intake.next_number,
            rng,
            rules,
            zero_us,
            *held,
            deferred=lambda: self._writer.deferred_records(),
        )
        self.openings = Openings(
            config=config,
            journal=journal,
            epoch=epoch,
            dispatch=self.dispatch,
            quotas=quotas,
            edge=edge,
            queue_elsewhere=queue_elsewhere,
            say=self.say,
            now_us=now_us,
        )
        self.dead_letters = DeadLetters(name, config, journal, now_us)
        self.dead_letter_admin = DeadLetterAdmin(self.dead_letters)
        who = quotas.who if quotas is not None else lambda peer: ""
        self.dead_letter_guard = DeadLetterGuard(config, self.dead_letters, self.intake, who)
        self.recovery = CoreRecovery(
            config=config,
            journal=journal,
            dispatch=self.dispatch,
            intake=self.intake,
            dead_letter_topic=self.dead_letters.topic,
            send=shell.send,
            zero_us=zero_us,
            now_us=now_us,
        )
        self._make_writer(journal, config, shell, edge, zero_us)
        self._performer: EffectPerformer[Effect] = EffectPerformer(self._perform)
        self._machines: tuple[HasEffects, ...] = (self.dispatch, self.intake, self.responses)
        self.parts = Parts()
        self.is_committing = False
        """Whether a commit is being requested. If it ends at once, `run` goes on with what became durable."""
        self._has_grown = False

    def _make_writer(
        self, journal: Journal, config: Config, shell: Shell, edge: Edge | None, zero_us: int
    ) -> None:
        """The parts that read and write the journal."""
        self._writer = JournalWriter(
            journal=journal,
            config=config,
            commit=shell.commit,
            intake=self.intake,
            responses=self.responses,
            dead_letters=self.dead_letters,
            is_awaited=self._is_awaited,
            may_be=edge.may_be if edge is not None else lambda peer, address: True,
        )
        self._owners: SourceOwners | None = None
        if edge is not None:
            write, next_number = self._writer.write, self.intake.next_number
            self._owners = SourceOwners(journal.ledger, edge, write, next_number, self.now_us)
        self._redelivery = RedeliverySender(
            dispatch=self.dispatch, find=self.find, lost=journal.lost, send=shell.send, perform=self._perform
        )
        self.scheduling = Scheduling(
            config=config,
            journal=journal,
            zero_us=zero_us,
            now_us=self.now_us,
            intake=self.intake,
            writer=self._writer,
        )
        self.orders = AdminOrders(
            ledger=journal.ledger,
            dispatch=self.dispatch,
            intake=self.intake,
            dead_letters=self.dead_letter_admin,
            scheduling=self.scheduling,
            output=self,
        )
        self.tail = JournalTail(journal)
        self._delivery = DeliveryFrames()
        self._retention = CoreRetention(
            settings=config.retention,
            journal=journal,
            dispatch=self.dispatch,
            dead_letters=self.dead_letters,
            scheduling=self.scheduling,
            tail=self.tail,
            mark=self.mark,
            on_removed=lambda removed, now: self.parts.give(
                EventsRemoved(removed, journal.start), JOURNAL, now
            ),
        )

    # -- input

    def receive(self, item: Input, peer: Peer, now: float) -> None:
        """From a publisher or a subscriber."""
        match item:
            case Frames():
                self.intake.receive(item, peer, now)
            case Declare(source=source):
                self.parts.give(SourceDeclared(source), peer, now)
                self.intake.receive(item, peer, now)
            case Settle(sub=sub, rejected=rejected):
                self.recovery.receive(item, peer, now)
                if rejected:  # their dead letters are durable before that is confirmed
                    self.dispatch.confirm_after(self.recovery.mark(), peer, sub)
                self.dispatch.receive(item, peer, now)
            case Credit() | Holding():
                self.dispatch.receive(item, peer, now)
            case Unsubscribe(sub=sub, forget=forget):
                if self.openings.end((peer, sub)):
                    self.say(peer, Unsubscribed(sub, is_forgotten=forget))
                else:
                    self.dispatch.receive(item, peer, now)
                self.parts.give(SubscriptionsChanged(), peer, now)
            case Subscribe():
                self.recovery.receive(item, peer, now)
                self.openings.subscribe(item, peer, now)
                self.parts.give(SubscriptionsChanged(), peer, now)
            case _:
                assert_never(item)

    def joined(self, peer: Peer, now: float) -> None:
        """A peer connected."""
        self.intake.receive(PeerJoined(), peer, now)

    def left(self, peer: Peer, now: float, is_abrupt: bool = False) -> None:
        """A peer's connection is gone. `is_abrupt`: it did not say goodbye, and this node did not close it."""
        left = PeerLeft(is_abrupt)
        self.intake.receive(left, peer, now)
        self.openings.left(peer)
        self.dispatch.receive(left, peer, now)
        self.recovery.receive(left, peer, now)
        self.parts.tell_all(left, peer, now)
        self.parts.give(SubscriptionsChanged(), peer, now)

    def blocked(self, peer: Peer, is_blocked: bool, now: float) -> None:
        """The send buffer to a peer is full, or has room again."""
        self.dispatch.receive(PeerBlocked(is_blocked), peer, now)
        self.parts.tell_all(PeerBlocked(is_blocked), peer, now)

    def end_subscription(self, key: QueueKey, code: Code, text: str, now: float) -> None:
        """The node ends a subscription, and says why."""
        if self.openings.end(key):
            self.say(key[0], Unsubscribed(key[1], code, text))
        else:
            self.dispatch.receive(EndSubscription(key[1], code, text), key[0], now)
        self.parts.give(SubscriptionsChanged(), key[0], now)

    def order(self, ask: Ask, peer: Peer, now: float) -> None:
        """An admin request that changes state. It is answered when the change is durable."""
        self.orders.take(ask, peer, now)

    def say_when_durable(self, peer: Peer, message: Message, now: float) -> None:
        """Send a message once everything that was staged before it is durable."""
        if self.journal.staged_end == self.journal.end and not self._writer.has_deferred:
            self.say(peer, message)
        else:
            self.dispatch.send_when_durable(self.mark(now), peer, message)

    def mark(self, now: float) -> int:
        """A number that is durable when everything staged by now is."""
        number = self.intake.next_number()
        self._writer.write(Mark(number), now)
        return number

    def tick(self, now: float) -> None:
        """Time passed."""
        # Events are compared with the time of day: a clock that was set must not make all of them seem wrong.
        self.intake.set_clock(self.now_us() - int(now * 1e6), self.config.limits.future_s_max)
        self.intake.tick(now)
        if (opened := self.openings.tick(now)) is not None:
            self.parts.give(SubscriptionsChanged(), opened, now)
        self.dispatch.tick(now)
        for peer in self.dispatch.subscribers.take_opened():
            self.parts.give(SubscriptionsChanged(), peer, now)
        self.responses.tick(now)
        self.recovery.tick(now)
        self.scheduling.tick(now)
        self.parts.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return earliest(
            (
                self.intake.next_deadline(),
                self.openings.next_deadline(),
                self.dispatch.next_deadline(),
                self.responses.next_deadline(),
                self.recovery.next_deadline(),
                self.scheduling.next_deadline(),
                self.parts.next_deadline(),
            )
        )

    def next_turn(self, now: float) -> None:
        """Others ran meanwhile: continue what would have taken too long in one turn."""
        self.parts.tell_all(NextTurn(), JOURNAL, now)

    def inspect(self, peer: Peer, batch: Batch) -> Refusal | None:
        """Why events with attributes are refused: they are not valid, or the peer may not be their source."""
        problem = self.responses.inspect(batch)
        return problem if problem is not None or self._edge is None else self._edge.inspect(peer, batch)

    # -- effects

    def run(self, now: float) -> None:
        """Perform the effects of all machines, in the order of `parts.py`, until there are none; then commit.

        Raises `EffectsFailed` at the end, if some failed.
        """
        self._has_grown = True
        while self._has_grown:  # a commit that ends at once makes more to do
            self._has_grown = False
            self._report_unreadable(now)
            self._run_machines(now)
            while self.parts.is_due and not self._performer.has_failed:
                try:
                    self.parts.perform(now)
                except Exception as error:
                    self._performer.failed(self.parts, error)
                self._run_machines(now)
            if self._writer.is_due:
                self.is_committing = True
                try:
                    self._writer.commit()
                finally:
                    self.is_committing = False
        self.tail.release()
        self._delivery.release()
        self._performer.raise_failures()

    def _run_machines(self, now: float) -> None:
        while True:
            self.dead_letter_guard.judge(now)
            # Deliveries come before acknowledgements: a subscriber waits for its event.
            effects: list[Effect] = []
            for machine in self._machines:
                if machine.effects:
                    effects += machine.take_effects()
            if not effects:  # heartbeats and losses come after the events before them
                effects += self.recovery.take_effects(now)
            if not effects:
                break
            self._performer.perform(effects, now)

    def _perform(self, effect: Effect, now: float) -> None:
        match effect:
            case DeliverRuns(peer=peer, sub=sub, pieces=pieces):
                self._shell.send(peer, self._delivery.buffers(effect))
                if self.responses.watch and self._serves(peer, sub):
                    for piece in pieces:
                        entries = piece.run.entries[piece.low : piece.high]
                        self.responses.delivered(entry.head for entry in entries)
            case Send(peer=peer, message=message):
                self.say(peer, message)
            case RefusedBatch(refusal=refusal) if not refusal.is_stored:
                if self._edge is not None:
                    self._edge.refused(effect.peer, effect.batch, refusal)
                    self.responses.refused(effect, self._edge.may_be)
            case Append(peer=peer, heads=heads) if self._owners is not None:
                self._writer.write(effect, now)
                self._owners.taken(peer, heads, now)
            case StoredForLater():
                self.scheduling.stored(effect)
            case Append() | AppendRecord() | DeadLetter() | Mark() | RefusedBatch() | Respond():
                self._writer.write(effect, now)
            case Redeliver():
                if self.responses.watch and self._serves(effect.peer, effect.sub):
                    self.responses.delivered_range(effect.topic, effect.source, effect.start, effect.stop)
                self._redelivery.redeliver(effect, now)
            case Withhold(is_on=is_on, is_less=is_less):
                refuses = self.dispatch.overflow.refuses if is_on else None
                self.intake.receive(QueuesFull(refuses, is_less), JOURNAL, now)
            case Fail(error=error):
                raise error
            case Scan(key=key, position=position, bytes_max=bytes_max):
                run = self.journal.read(max(position, self.journal.start), None, bytes_max)
                self._report_unreadable(now)
                self.dispatch.receive(JournalScanned(key, run), JOURNAL, now)
            case _:
                self.recovery.perform(effect, now)

    def _is_awaited(self, topic: str) -> bool:
        """Whether a topic has a subscriber of its own here, which may be away, or any subscriber on another node."""
        if self.dispatch.has_subscriber(topic) or self._is_elsewhere(topic):
            return True
        accounts = self.journal.ledger.accounts.values()
        return any(account.pattern.is_topic and account.pattern.matches(topic) for account in accounts)

    def _serves(self, peer: Peer, sub: int) -> bool:
        """Whether a subscription is to exactly one topic, as that of a service is; others only observe."""
        queue = self.dispatch.registry.get((peer, sub))
        return queue is not None and queue.pattern.is_topic

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Send frames to a peer now, ahead of the effects that wait; nothing happens if it is gone."""
        self._shell.send(peer, buffers)

    def say(self, peer: Peer, message: Message) -> None:
        """Send a message to a peer now, ahead of the effects that wait; nothing happens if it is gone."""
        self._shell.send(peer, (encode(message),))

    def find(
        self, topic: str, source: bytes, start: int, stop: int, bytes_max: int | None = None
    ) -> list[Batch]:
        """The events `[start, stop)` that are held, as batches cut to that range: as many as fit."""
        found: list[Batch] = []
        for entry in self.journal.find(topic, source, start, stop, bytes_max):
            try:
                found.append(Batch.parse(self.journal.fetch(entry)).cut(start, stop))
            except Gone:
                continue
        return found

    def stage(self, effect: Append | AppendRecord | DeadLetter | RefusedBatch, now: float) -> None:
        """Stage an effect of a machine that is not the core's own; `run` makes it durable."""
        self._writer.write(effect, now)

    # -- the journal's answers

    def durable(self, number: int, end: int, now: float) -> None:
        """A commit ended: the events that it covers are acknowledged and delivered."""
        self._has_grown = True
        self.dispatch.receive(JournalGrown(self.tail.advance(end), end), JOURNAL, now)
        committed = MadeDurable(number)
        self.intake.receive(committed, JOURNAL, now)
        self.dispatch.receive(committed, JOURNAL, now)
        self.scheduling.durable(number, now)
        self.parts.tell_all(committed, JOURNAL, now)
        self._retention.made_durable(number, now)
        self._writer.write_deferred()
        if self.intake.stopped and not self._writer.has_deferred and not self.dead_letters.is_full:
            self.intake.receive(ResumeIntake(), JOURNAL, now)

    def _report_unreadable(self, now: float) -> None:
        """Report events that some read of the journal found to be damaged, before anything that follows them."""
        for part in self.journal.take_unreadable():
            if part.lost:
                self.dispatch.receive(JournalDamaged(list(part.lost)), JOURNAL, now)

    def failed(self, error: JournalError, now: float) -> None:
        """The journal can't store more: publishers are told to wait, and nothing durable is lost."""
        self.intake.receive(StopIntake(str(error)), JOURNAL, now)

    def trim(self, now: float) -> None:
        """Apply retention."""
        self._retention.trim(now)

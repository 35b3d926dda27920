"""The part of a node that decides and does no I/O: its machines, its journal, and what the machines want done.

The asyncio node and the simulator run the same core, so what the simulator tries is what runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, assert_never

from msgspec.structs import replace

from reknit.address import Address
from reknit.batch import Batch
from reknit.config import Config
from reknit.entries import Run
from reknit.errors import Gone, JournalError, JournalFull, LocalError
from reknit.frame import Buffer
from reknit.node.core.dead_letter_admin import LetterOffice
from reknit.node.core.dead_letters import DeadLetters, time_us
from reknit.node.core.responses import Responses
from reknit.node.core.start_position import resolve
from reknit.outcome import Code
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import (
    CreditCorrection,
    EventsExpired,
    EventsGone,
    JournalGrown,
    JournalScanned,
    JournalTrimmed,
    PeerBlocked,
    SetPaused,
)
from reknit.protocol.dispatch.rules import DispatchRules
from reknit.protocol.effects import (
    Append,
    AppendRecord,
    DeadLetter,
    DeliverRuns,
    Redeliver,
    Scan,
    Send,
    Withhold,
)
from reknit.protocol.machine import JOURNAL, MadeDurable, Peer, PeerJoined, PeerLeft
from reknit.protocol.publish.admission import Refusal
from reknit.protocol.publish.intake import Intake, QueuesFull, RefusedBatch, ResumeIntake, StopIntake
from reknit.protocol.rpc.open_requests import Respond
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.codec import Frames, encode
from reknit.wire.messages import (
    Answer,
    Ask,
    Credit,
    Declare,
    Message,
    Settle,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)
from reknit.wire.messages import Deliver as DeliverMessage

GROW_BYTES = 4 << 20

Input = Frames | Declare | Credit | Settle | Unsubscribe | Subscribe
Effect = (
    Append
    | AppendRecord
    | DeadLetter
    | DeliverRuns
    | Redeliver
    | RefusedBatch
    | Respond
    | Scan
    | Send
    | Withhold
)
Staged = Append | AppendRecord | DeadLetter | RefusedBatch | Respond


class Shell(Protocol):
    """Who runs a core: carries its bytes and makes its journal durable."""

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Send these frames to a peer, in one go; nothing happens if it is not there any more."""

    def commit(self, number: int, sync: bool) -> None:
        """Make everything staged by now durable; then call `kept(number, …)`, or `failed` and try again."""


class Edge(Protocol):
    """Who says what peers may do; see `reknit.node.peers.permissions`."""

    def permit(self, peer: Peer, source: bytes, topic: str) -> Refusal | None:
        """Why a peer may not publish as a source on a topic."""

    def may_be(self, peer: Peer, address: Address) -> bool:
        """Whether events from an address may come from a peer."""

    def inspect(self, peer: Peer, batch: Batch) -> Refusal | None:
        """Why events with attributes, which are sound, may not come from a peer."""


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
        zero_us: int = 0,
        now_us: Callable[[], int] = time_us,
        edge: Edge | None = None,
    ) -> None:
        self.epoch = epoch
        self.journal = journal
        self.config = config
        self._shell = shell
        limits = config.limits
        published = journal.ledger.published
        kept = {source: seqs.last for (_, source), seqs in published.items() if seqs}
        self._edge = edge
        self.is_elsewhere: Callable[[str], bool] = lambda topic: False
        """Whether another node subscribes to a topic, as far as the node knows."""
        permit = None if edge is None else edge.permit
        self.intake = Intake(kept, limits.sources_max, limits.batch_events_max, permit, self.inspect)
        self.responses = Responses(name, journal, config, zero_us, now_us)
        self.intake.set_clock(zero_us, limits.future_s_max)
        rules, held = DispatchRules.from_config(config), (journal.first_held, journal.start, journal.paused)
        self.dispatch = Dispatcher(
            journal.ledger, journal.end, self.intake.next_number, rng, rules, zero_us, *held
        )
        self.dead_letters = DeadLetters(name, config, journal, now_us)
        self.letter_office = LetterOffice(self.dead_letters)
        self._memory_topics = any(rule.durability == "memory" for rule in config.topics)
        self._staged_number = 0
        """The highest number among what was staged."""
        self._is_dirty = False
        self._needs_sync = False
        self._deferred: deque[Staged] = deque()
        self._seen_end = journal.end

    # -- input

    def receive(self, item: Input, peer: Peer, now: float) -> None:
        """From a publisher or a subscriber."""
        match item:
            case Frames() | Declare():
                self.intake.receive(item, peer, now)
            case Credit() | Settle() | Unsubscribe():
                self.dispatch.receive(item, peer, now)
            case Subscribe():
                self._subscribe(item, peer, now)
            case _:
                assert_never(item)

    def joined(self, peer: Peer, now: float) -> None:
        """A peer's connection stands."""
        self.intake.receive(PeerJoined(), peer, now)

    def left(self, peer: Peer, now: float) -> None:
        """A peer's connection is gone."""
        self.intake.receive(PeerLeft(), peer, now)
        self.dispatch.receive(PeerLeft(), peer, now)

    def blocked(self, peer: Peer, is_blocked: bool, now: float) -> None:
        """The way to a peer is full, or free again."""
        self.dispatch.receive(PeerBlocked(is_blocked), peer, now)

    def order(self, ask: Ask, peer: Peer, now: float) -> None:
        """Someone wants something done: pause or resume topics, redrive or drop dead letters. Answered when durable."""
        before = self.journal.staged_end
        try:
            match ask.what:
                case "pause" | "resume":
                    pattern = Pattern(str(ask.args["pattern"])).text
                    self.dispatch.receive(SetPaused(ask.id, pattern, ask.what == "pause"), peer, now)
                    return
                case "redrive":
                    body = self.letter_office.redrive(ask.args)
                case _:
                    body = self.letter_office.drop(ask.args)
        except JournalFull as error:
            self._say(peer, Answer(ask.id, Code.RESOURCE_EXHAUSTED, str(error)))
            return
        except (LocalError, KeyError, TypeError, ValueError) as error:
            self._say(peer, Answer(ask.id, Code.INVALID_ARGUMENT, f"{ask.what}: {error}"))
            return
        answer = Answer(ask.id, Code.OK, "", body)
        if self.journal.staged_end == before:
            self._say(peer, answer)
            return
        number = self._staged_number = self.intake.next_number()
        self._is_dirty, self._needs_sync = True, self.config.journal.sync
        self.dispatch.send_when_durable(number, peer, answer)

    def tick(self, now: float) -> None:
        """Time passed."""
        self.dispatch.tick(now)
        self.responses.tick(now)

    def next_deadline(self) -> float | None:
        due = [self.dispatch.next_deadline(), self.responses.next_deadline()]
        return min((at for at in due if at is not None), default=None)

    def inspect(self, peer: Peer, batch: Batch) -> Refusal | None:
        """Why events with attributes are not taken: they are not sound, or the peer may not be their source."""
        problem = self.responses.inspect(batch)
        return problem if problem is not None or self._edge is None else self._edge.inspect(peer, batch)

    def _may_be(self, peer: Peer, address: Address) -> bool:
        return self._edge is None or self._edge.may_be(peer, address)

    def _subscribe(self, request: Subscribe, peer: Peer, now: float) -> None:
        subscriptions_max = self.config.limits.subscriptions_max
        if len(self.dispatch.queues) >= subscriptions_max:
            text = f"the node has {subscriptions_max} subscriptions (limits.subscriptions_max)"
            self._say(peer, Unsubscribed(request.sub, Code.RESOURCE_EXHAUSTED, text))
            return
        try:
            opened = resolve(request, self.journal, self.epoch)
        except LocalError as error:
            self._say(peer, Unsubscribed(request.sub, Code.INVALID_ARGUMENT, str(error)))
            return
        self.dispatch.receive(opened, peer, now)

    # -- effects

    def run(self, now: float) -> None:
        """Carry out what the machines want until they want nothing more; then see to durability."""
        while True:
            if self.dead_letters.is_full and not self.intake.is_full:
                self.intake.receive(StopIntake(self.dead_letters.full_text), JOURNAL, now)
            # What is handed out comes before what is acknowledged: a subscriber waits for its event.
            effects: list[Effect] = [*self.dispatch.take_effects(), *self.intake.take_effects()]
            effects += self.responses.take_effects()
            if not effects:
                break
            for effect in effects:
                self._perform(effect, now)
        if self._is_dirty:
            sync, self._is_dirty, self._needs_sync = self._needs_sync, False, False
            self._shell.commit(self._covered(), sync)

    def _perform(self, effect: Effect, now: float) -> None:
        match effect:
            case Append() | AppendRecord() | DeadLetter() | RefusedBatch() | Respond():
                self._keep(effect, now)
            case DeliverRuns(peer=peer, sub=sub, size=size, position=position, pieces=pieces):
                header = encode(DeliverMessage(sub, size, position))
                cuts = [piece.run.cut(piece.low, piece.high) for piece in pieces]
                self._shell.send(peer, [header, *cuts])
                if self.responses.watch and self._serves(peer, sub):
                    for piece in pieces:
                        entries = piece.run.entries[piece.low : piece.high]
                        self.responses.handed(entry.head for entry in entries)
            case Send(peer=peer, message=message):
                self._say(peer, message)
            case Redeliver():
                if self.responses.watch and self._serves(effect.peer, effect.sub):
                    self.responses.handed_range(effect.topic, effect.source, effect.start, effect.stop)
                self._redeliver(effect, now)
            case Withhold(is_on=is_on, is_less=is_less):
                refuses = self.dispatch.overflow.refuses if is_on else None
                self.intake.receive(QueuesFull(refuses, is_less), JOURNAL, now)
            case Scan(key=key, position=position, bytes_max=bytes_max):
                run = self.journal.read(max(position, self.journal.start), None, bytes_max)
                self.dispatch.receive(JournalScanned(key, run), JOURNAL, now)
            case _:
                assert_never(effect)

    def _is_awaited(self, topic: str) -> bool:
        """Whether anybody gets what goes to a topic: here, on another node, or when they are back."""
        if self.dispatch.has_subscriber(topic) or self.is_elsewhere(topic):
            return True
        return any(account.pattern.matches(topic) for account in self.journal.ledger.accounts.values())

    def _serves(self, peer: Peer, sub: int) -> bool:
        """Whether a subscription is to one topic, as that of who serves an address is: others just look on."""
        queue = self.dispatch.queues.get((peer, sub))
        return queue is not None and queue.pattern.is_topic

    def _say(self, peer: Peer, message: Message) -> None:
        self._shell.send(peer, (encode(message),))

    def _redeliver(self, effect: Redeliver, now: float) -> None:
        batches = self.find(effect.topic, effect.source, effect.start, effect.stop)
        found = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
        missing = found.missing(effect.start, effect.stop)
        overdue = self._overdue(effect, batches) if effect.attempt > 1 else []
        if missing or overdue:
            self._redeliver_rest(effect, missing, overdue, found, now)
            return
        counted, size = effect.attempt == 1, 0
        ordered_to = effect.stop if effect.is_ordered else 0
        for batch in batches:
            size += batch.head.length
            header = DeliverMessage(effect.sub, batch.head.length, -1, effect.attempt, counted, ordered_to)
            self._shell.send(effect.peer, [encode(header), batch.data])
        if counted and size != effect.size:
            self.dispatch.receive(
                CreditCorrection((effect.peer, effect.sub), size - effect.size), JOURNAL, now
            )

    def _redeliver_rest(
        self, effect: Redeliver, missing: list[Range], overdue: list[Range], found: SeqSet, now: float
    ) -> None:
        """Some of it is not held any more, or not to be tried again: told in its place, overtaken by nothing."""
        key, stream = (effect.peer, effect.sub), (effect.topic, effect.source)
        later = self.dispatch.take_effects()
        for bounds in overdue:
            found.discard(*bounds)
        ends: list[EventsGone | EventsExpired] = [EventsGone(key, *stream, *bounds) for bounds in missing]
        ends += [EventsExpired(key, *stream, *bounds) for bounds in overdue]
        parts = [replace(effect, start=start, stop=stop, size=0) for start, stop in found.ranges()]
        for part in sorted([*ends, *parts], key=lambda part: part.start):
            if isinstance(part, Redeliver):
                self._redeliver(part, now)
            else:
                self.dispatch.receive(part, JOURNAL, now)
            for made in self.dispatch.take_effects():
                self._perform(made, now)
        self.dispatch.put_back_effects(later)
        self.dispatch.receive(CreditCorrection(key, -effect.size), JOURNAL, now)

    def _overdue(self, effect: Redeliver, batches: list[Batch]) -> list[Range]:
        """What is past its ttl. Of those with a name this is known before; of others it is looked up when they fail."""
        return self.dispatch.overdue(effect, batches)

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The events `[start, stop)` that are held, as batches cut to that range."""
        found: list[Batch] = []
        for entry in self.journal.find(topic, source, start, stop):
            try:
                found.append(Batch.parse(self.journal.fetch(entry)).cut(start, stop))
            except Gone:
                continue
        return found

    # -- keeping

    def keep(self, effect: Append | AppendRecord | DeadLetter | RefusedBatch, now: float) -> None:
        """Stage something that none of the core's own machines wants kept; `run` makes it durable."""
        self._keep(effect, now)

    def _keep(self, effect: Staged, now: float) -> None:
        """Stage for the journal. What does not fit now waits in order: nothing is dropped."""
        if self._deferred:
            self._deferred.append(effect)
            return
        try:
            self._stage(effect)
        except JournalFull as error:
            self._deferred.append(effect)
            self.intake.receive(StopIntake(str(error)), JOURNAL, now)

    def _stage(self, effect: Staged) -> None:
        match effect:
            case Append(number=number, data=data, heads=heads):
                self.journal.stage(data, heads)
                if heads[0].flags:  # such a batch comes alone
                    self.responses.staged(data, heads)
                sync = not self._memory_topics or any(self._is_durable(head.topic) for head in heads)
            case AppendRecord(number=number, record=record):
                self.journal.stage_record(record)
                sync = True
            case DeadLetter():
                self.responses.died(effect)
                if not self.dead_letters.stage(effect):
                    return
                number, sync = self.intake.next_number(), True
            case RefusedBatch(batch=refused, refusal=problem, attempts=attempts):
                why = (problem.code, str(problem.reason), problem.text, attempts)
                self.dead_letters.stage_refused(refused, *why)
                number, sync = self.intake.next_number(), True
                self.responses.refused(effect, self._may_be)
            case Respond():
                response = self.responses.write(effect)
                self.journal.stage(bytes(response.data), [response.head])
                if not self._is_awaited(response.topic):
                    self.responses.unwanted(response)
                number, sync = self.intake.next_number(), True
            case _:
                assert_never(effect)
        self._staged_number = max(self._staged_number, number)
        self._is_dirty = True
        self._needs_sync = self._needs_sync or (sync and self.config.journal.sync)

    def _is_durable(self, topic: str) -> bool:
        return self.config.topic(topic).durability == "durable"

    def _covered(self) -> int:
        """The number up to which everything is staged. Both machines draw numbers, so order alone does not tell."""
        waiting = [
            effect.number
            for effect in self._deferred
            if not isinstance(effect, DeadLetter | RefusedBatch | Respond)
        ]
        return min(self._staged_number, min(waiting) - 1) if waiting else self._staged_number

    # -- the journal's answers

    def kept(self, number: int, end: int, now: float) -> None:
        """A commit ended: what it covers is acknowledged and handed out."""
        runs: list[Run] = []
        while self._seen_end < end:
            run = self.journal.read(self._seen_end, end, GROW_BYTES)
            runs.append(run)
            self._seen_end = run.next_position
        self.dispatch.receive(JournalGrown(runs, end), JOURNAL, now)
        kept = MadeDurable(number)
        self.intake.receive(kept, JOURNAL, now)
        self.dispatch.receive(kept, JOURNAL, now)
        self._stage_deferred()
        if self.intake.is_full and not self._deferred and not self.dead_letters.is_full:
            self.intake.receive(ResumeIntake(), JOURNAL, now)

    def _stage_deferred(self) -> None:
        while self._deferred:
            try:
                self._stage(self._deferred[0])
            except JournalFull:
                return
            self._deferred.popleft()

    def failed(self, error: JournalError, now: float) -> None:
        """The journal can't take more: publishers are told to wait, nothing that was kept is lost."""
        self.intake.receive(StopIntake(str(error)), JOURNAL, now)

    def trim(self, now: float) -> None:
        """Apply retention; what a durable subscriber is still owed stays, unless the configuration says otherwise."""
        retention = self.config.retention
        if not (retention.count_max or retention.bytes_max or retention.age_s_max):
            return
        floor = None
        if retention.protect_unsettled:
            floors = [account.floor for account in self.journal.ledger.accounts.values()]
            letters = self.dead_letters.floor()
            floor = min(floors if letters is None else [*floors, letters], default=None)
        removed = self.journal.trim(None, floor)
        if removed:
            self.dispatch.receive(JournalTrimmed(self.journal.start, removed), JOURNAL, now)

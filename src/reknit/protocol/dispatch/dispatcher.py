"""Dispatching: every subscriber gets every event that matches, at least once, or there is a dead letter that says why.

Steps 7 and 8 of an event's way. A subscriber's queue is a cursor over the journal; what it does not take within its
credit stays in the journal and costs nothing here. Outcomes come back as ranges and go into the journal's ledger.

subscriptions  who is there, and durable accounts       settling   outcomes, retries, leases that end
handing        from the journal to subscribers          endings    ends, dead letters first
asides         what waits beside, or comes once more    expiry     ttl
queue, lanes   one subscriber's place and exceptions    overflow   limits of queues
leases         what is held, and how much ahead         losses     what retention removed
weights        priorities                               pauses     topics that are stopped
"""

from __future__ import annotations

from collections.abc import Callable, Set
from random import Random
from typing import Final, assert_never

from reknit.entries import Run
from reknit.ledger import Ledger, Stream
from reknit.outcome import Code, Reason
from reknit.protocol.dispatch.delivery_pump import SCAN_BYTES, Handing
from reknit.protocol.dispatch.expiry import Expiry
from reknit.protocol.dispatch.inputs import (
    Blocked,
    Grown,
    Key,
    Open,
    Outlived,
    Scanned,
    Sent,
    Switch,
    Trimmed,
    Vanished,
)
from reknit.protocol.dispatch.losses import Losses
from reknit.protocol.dispatch.outcome_recorder import Endings
from reknit.protocol.dispatch.overflow import Load, Overflow
from reknit.protocol.dispatch.pauses import Pauses
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.redelivery import Asides
from reknit.protocol.dispatch.rules import Rules
from reknit.protocol.dispatch.settlement import Settling
from reknit.protocol.dispatch.state import Desk, Effect
from reknit.protocol.dispatch.subscribers import Subscriptions
from reknit.protocol.effects import Scan
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.publish.intake import Kept, Left
from reknit.records import TopicPaused, TopicResumed
from reknit.seqset import SeqSet
from reknit.wire.messages import Answer, Credit, Settle, Unsubscribe

FLOOR_S: Final = 5.0
"""How often a durable subscriber's floor is written down without an outcome to go with it."""
SWEEP: Final[Key] = (JOURNAL, -1)
"""Who looks through what is in the journal from before this node came up."""

Input = (
    Blocked | Open | Unsubscribe | Credit | Settle | Left | Grown | Scanned | Trimmed | Vanished | Outlived | Kept | Sent
    | Switch
)  # fmt: skip


class Dispatch:
    """All subscribers of one node."""

    def __init__(
        self,
        ledger: Ledger,
        end: int,
        next_number: Callable[[], int],
        rng: Random,
        rules: Rules | None = None,
        zero_us: int = 0,
        first_held: Callable[[str, bytes], int] | None = None,
        start: int = 0,
        paused: Set[str] = frozenset(),
    ) -> None:
        rules = rules or Rules()
        self.pauses = Pauses(paused)
        self.desk = desk = Desk(ledger, end, next_number, rng, rules, self.pauses, zero_us)
        self.overflow = Overflow(rules, ledger)
        self.endings = Endings(desk, self.overflow)
        self.expiry = Expiry(desk, self.endings)
        self.asides = Asides(desk)
        self.handing = Handing(desk, self.endings, self.expiry, self.asides)
        self.settling = Settling(desk, self.endings, self.handing, self.asides)
        self.losses = Losses(desk, self.endings, first_held or (lambda topic, source: 1), start)
        self.subscriptions = Subscriptions(desk, self.handing, self.losses, self.overflow)
        floors = [account.floor for account in ledger.accounts.values()]
        self._sweep = max(min(floors, default=end), start)
        self._sweep_to = end
        self._floor_due: float | None = None
        self._judge_queues()

    @property
    def queues(self) -> dict[Key, Queue]:
        return self.desk.queues

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a subscriber, from the journal, or from a person."""
        self.desk.at(now)
        match message:
            case Grown(runs=runs, end=end):
                self._grow(runs, end)
            case Credit(sub=sub, total=total):
                self._credit((peer, sub), total)
            case Settle():
                self.settling.settle(message, peer)
                if self.overflow.is_on:
                    self._judge_queues()
            case Kept(number=number):
                self.desk.confirm(number)
                self.settling.confirm(number)
                self.subscriptions.kept(number)
            case Scanned(key=key, run=run):
                if key == SWEEP:
                    self._swept(run)
                else:
                    self.handing.scanned(key, run)
            case Sent(key=key, difference=difference):
                if (queue := self.queues.get(key)) is not None:
                    queue.sent += difference
                    if difference <= 0:  # there may be room after all
                        self._hand_out(queue)
            case Open():
                self.subscriptions.open(message, peer)
                self._floor_due = self._floor_due or now + FLOOR_S
            case Unsubscribe(sub=sub, forget=forget):
                self.subscriptions.unsubscribe((peer, sub), forget)
            case Blocked(is_blocked=is_blocked):
                self._block(peer, is_blocked)
            case Left():
                self.subscriptions.leave(peer)
            case Trimmed(start=start, removed=removed):
                self.handing.trim(start)
                self.losses.trim(start, removed)
                for queue in [queue for queue in self.queues.values() if queue.lanes.is_ready]:
                    self._hand_out(queue)
            case Vanished():
                self.losses.vanish(message)
            case Outlived():
                self.expiry.outlived(message)
            case Switch():
                self._switch(message, peer)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Hand out again what is due, end leases and what has expired, and write down floors that moved."""
        self.desk.at(now)
        self.expiry.tick()
        for queue in list(self.desk.backing_off):
            self.settling.end_leases(queue)
            self._hand_out(queue)
        if self._sweep < self._sweep_to:
            self.desk.effects.append(Scan(SWEEP, self._sweep, SCAN_BYTES))
        if self._floor_due is not None and now >= self._floor_due:
            self._floor_due = now + FLOOR_S if self.desk.by_name else None
            self._write_floors()
        self._judge_queues()

    def next_deadline(self) -> float | None:
        """The earliest repeated hand-over, end of a lease or of a ttl, or the next floor to write."""
        due = [self._floor_due, self.expiry.next_due()]
        for queue in self.desk.backing_off:
            due.append(None if queue.leases is None else queue.leases.next_due())
            due.append(queue.lanes.next_due())
            if queue.again and queue.room > 0:
                due.append(queue.again[0].due)
        if self._sweep < self._sweep_to:
            due.append(self.desk.now)
        return min((at for at in due if at is not None), default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self.desk.effects = self.desk.effects, []
        return effects

    def in_hand(self) -> dict[str, dict[Stream, SeqSet]]:
        """For every connected durable subscriber the events that its queue knows to be under way."""
        return {name: queue.in_hand(self.desk.ledger.published) for name, queue in self.desk.by_name.items()}

    # -- credit, and the way to a peer

    def _hand_out(self, queue: Queue) -> None:
        self.asides.again(queue)
        self.handing.pump(queue)

    def _credit(self, key: Key, total: int) -> None:
        queue = self.queues.get(key)
        if queue is not None and total > queue.credit:
            queue.credit = total
            self._hand_out(queue)

    def _block(self, peer: Peer, is_blocked: bool) -> None:
        for queue in [queue for key, queue in self.queues.items() if key[0] == peer]:
            queue.is_blocked = is_blocked
            self._hand_out(queue)

    def _write_floors(self) -> None:
        for name, queue in sorted(self.desk.by_name.items()):
            floor = queue.move_floor(self.desk.end)
            if floor > self.desk.floors.get(name, -1):
                self.endings.record(name, [], floor)

    # -- the journal

    def _grow(self, runs: list[Run], end: int) -> None:
        has_ttl = self.desk.rules.has_ttl
        for run in runs:
            for index, entry in enumerate(run.entries):
                head = entry.head
                if has_ttl or head.ttl_ms or head.flags:
                    self._note_ttl(run, index)
        self.handing.grow(runs, end)
        if self.overflow.is_on:
            self._count(runs)
            self._judge_queues()

    def _note_ttl(self, run: Run, index: int) -> None:
        if self.desk.ledger.accounts and self.expiry.has_ttl(run.entries[index].head):
            self.expiry.note(run, index)

    def _swept(self, run: Run) -> None:
        """What is in the journal from before has its ttl and its size, too."""
        for index, entry in enumerate(run.entries):
            if entry.position < self._sweep_to:
                self._note_ttl(run, index)
                for load in self.overflow.loads(entry.head.topic) if self.overflow.is_on else ():
                    self.overflow.swept(load, entry.head)
        self._sweep = max(run.next_position, self._sweep + 1)

    # -- limits of queues

    def _count(self, runs: list[Run]) -> None:
        for head in [entry.head for run in runs for entry in run.entries]:
            for load in self.overflow.loads(head.topic):
                too_many = self.overflow.came(load, head)
                if not too_many:
                    continue
                stream = (head.topic, head.source)
                text = "too many events wait for the subscriber"
                if self.desk.rules.of(head.topic).overflow == "refuse_newest":
                    newest = (max(head.first, head.stop - too_many), head.stop)
                    ends = (0, Reason.EGRESS_FULL, f"{text}: the newest is refused")
                    self.expiry.end_waiting(load.name, stream, [newest], *ends)
                else:
                    self._drop_oldest(load, too_many, f"{text}: the oldest is dropped")

    def _drop_oldest(self, load: Load, too_many: int, text: str) -> None:
        """Make dead letters of the oldest that still wait, until few enough are left."""
        while too_many > 0 and (found := self.overflow.oldest(load)) is not None:
            stream, (start, stop) = found
            cut = min(stop, start + too_many)
            too_many -= self.expiry.end_waiting(
                load.name, stream, [(start, cut)], 0, Reason.EGRESS_FULL, text
            )
            if cut < stop:
                self.overflow.put_back(load, stream, (cut, stop))

    def _judge_queues(self) -> None:
        if self.overflow.is_on and (withhold := self.overflow.judge()) is not None:
            self.desk.effects.append(withhold)

    # -- start and stop

    def _switch(self, message: Switch, peer: Peer) -> None:
        """Pause or resume what a pattern matches; confirmed when that is durable."""
        pattern, time_us = message.pattern, self.desk.time_us
        record: TopicPaused | TopicResumed
        if message.is_paused:
            is_news = self.pauses.pause(pattern)
            record = TopicPaused(pattern, time_us)
        else:
            is_news = self.pauses.resume(pattern)
            record = TopicResumed(pattern, time_us)
        body = {"paused": self.pauses.patterns, "changed": is_news}
        number = self.desk.append(record) if is_news else self.desk.kept
        if number > self.desk.kept:
            self.desk.promise(number, peer, Answer(message.id, Code.OK, "", body))
        else:
            self.desk.say(peer, Answer(message.id, Code.OK, "", body))
        for queue in list(self.queues.values()):
            queue.lanes.look_at_all()
            self._hand_out(queue)

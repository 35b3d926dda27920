"""Programs that subscribe: the production machine, with an application that settles at random."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.machine import Peer
from reknit.protocol.queues.queue import Queue
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.seqset import Range
from reknit.testing.applications import Application
from reknit.testing.archive import ARCHIVE
from reknit.testing.checks.deliveries import name_of
from reknit.testing.checks.rest import deadlines_are_met, subscribers_forget, windows_are_free
from reknit.testing.clock import START_US
from reknit.testing.delivery_faults import DeliveryFaults
from reknit.testing.observed import ObservedSubscriber, SubscriberKind
from reknit.testing.programs import Program
from reknit.testing.world import World
from reknit.topic import Pattern
from reknit.wire.codec import encode
from reknit.wire.messages import (
    Lost,
    Message,
    Revoked,
    Settled,
    Start,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from reknit.wire.recovery import Span

LEAVE_S = 0.3
"""How long a program that unsubscribes waits for the node's response."""
CALM_DOWN_S = 0.02
"""How long it takes to start a program again once the faults are over: it may die of many events."""


class SubscriberProgram(Program):
    """Subscribes, passes delivered batches to its application, and may unsubscribe."""

    meets_repeats = True
    """Whether events may come to it twice."""

    def __init__(
        self, name: str, node: str, world: World, rng: Random, pattern: str, durable: bool, history: bool
    ) -> None:
        super().__init__(name, node, world, rng)
        self.pattern = pattern
        self.durable = durable
        self.history = history
        self._recovers = Random(f"recovers {name} {world.plan.seed}").random() < world.plan.recover_share
        self.machine: subscribing.Subscriber
        self._recovery: recovering.Recovery | None = None
        self.seen: ObservedSubscriber

    def make_machine(self) -> subscribing.Subscriber:
        """The machine of a new process."""
        return self.world.parts.subscriber(
            1,
            self.pattern,
            self.name if self.durable else "",
            Start(history=self.history),
            self.world.plan.credit_bytes,
            recovery=self._recovery,
            zero_us=START_US,
            process=f"{self.name} {self.life}".encode(),
        )

    def observe(self) -> ObservedSubscriber:
        """What is known of it from now on."""
        identity = self.name if self.durable else f"{self.name}.{self.life}"
        kind = SubscriberKind(self.node, Pattern(self.pattern), self.durable, self.history)
        return self.world.witness.subscriber(identity, kind)

    def begin(self) -> None:
        plan = self.world.plan
        self._recovery = self._make_recovery() if not self.durable and self._recovers else None
        self.machine = self.make_machine()
        self.seen = self.observe()
        self._leaves = ""
        self._has_left = False
        self._tick_at = float("inf")
        self._ticked: tuple[float, int] = (-1.0, 0)
        """When the machine was told of the time last, and how often since the time moved."""
        faults = self.world.rng(f"deliveries {self.name} {self.life}")
        self._delivery_faults = DeliveryFaults(
            self.machine,
            self.seen,
            plan,
            faults,
            recovers=self._recovery is not None or not self.meets_repeats,
        )
        self._application = Application(
            self.name,
            self.machine,
            self.seen,
            self.world,
            self.rng,
            after=self.after,
            perform=self._perform,
            die=self._die,
        )

    def _die(self) -> None:
        """The process dies of an event, and is started again."""
        down_s = self.rng.uniform(0.0, self.world.plan.program_down_s_max)
        self.crash()
        self.world.clock.after(min(down_s, CALM_DOWN_S) if self.world.is_calm else down_s, self._rise)

    def _rise(self) -> None:
        if not self.is_up and not self.is_retired:
            self.start()

    def _make_recovery(self) -> recovering.Recovery:
        asking = SearchSettings(timeout_s=0.5, patience_s=3.0, bytes_max=400)
        caches = (subscribing.NODE, ARCHIVE) if self.world.plan.archive else (subscribing.NODE,)
        return recovering.Recovery(caches, asking, HoldLimits(self.world.plan.hold_events_max, 1 << 14))

    def end(self) -> None:
        self.seen.ended(has_left=self._has_left)

    def linked(self, epoch: str) -> None:
        self._receive(subscribing.Connected(epoch))

    def unlinked(self) -> None:
        self._receive(subscribing.Disconnected())

    def take(self, item: object) -> None:
        match item:
            case subscribing.Delivered():
                self._deliver(item)
            case Lost():
                self._receive(item)
                if self._delivery_faults.is_repeated():
                    self._receive(item)
            case Settled() | Subscribed() | Unsubscribed():
                self._receive(item)
            case Revoked():
                self._application.revoke((item.topic, item.source), item.start, item.stop)
                self._receive(item)

    def _deliver(self, item: subscribing.Delivered) -> None:
        if not self.world.is_calm:
            if self._delivery_faults.is_missed(item):
                self.world.tell(self.name, "misses", *item.batches)
                self._application.flush()
                return
            early = self._delivery_faults.before(item)
            if early is not None:
                self.world.tell(self.name, "has early", *early.batches)
                self._receive(early)
        self._receive(item)

    def _receive(self, item: subscribing.Input, peer: Peer = subscribing.NODE) -> None:
        self.machine.receive(item, peer, self.world.clock.now)
        self._perform()

    def _perform(self) -> None:
        self._perform_all()
        due = self.machine.next_deadline()
        if due is not None and due < self._tick_at:
            self._tick_at = due
            self.after(max(due - self.world.clock.now, 0.0), self._tick)

    def _tick(self) -> None:
        self._tick_at = float("inf")
        now, (before, ticks) = self.world.clock.now, self._ticked
        self._ticked = (now, ticks + 1 if now == before else 1)
        self.machine.tick(now)
        self._perform()
        due = self.machine.next_deadline()
        self.world.witness.blame_all(self.name, deadlines_are_met(self.name, due, now, self._ticked[1]))

    def _perform_all(self) -> None:
        out: list[Message] = []
        for effect in self.machine.take_effects():
            match effect:
                case subscribing.DeliverBatches(batches=batches):
                    self._application.take(batches)
                case subscribing.SendToNode(message=message):
                    out.append(message)
                case subscribing.OutcomesStored(number=number):
                    self._application.outcomes_stored(number)
                    self.seen.losses_stored(number)
                case subscribing.SubscriptionOpened():
                    self.seen.opened()
                case subscribing.LossReport():
                    self.world.tell(self.name, effect)
                    self.seen.reported_lost(effect, self.machine.node.outcomes.number)
                    if self._recovery is not None and self.world.plan.can_ask_nodes:
                        self.world.witness.check_lost(self.seen, effect)
                case AskCache(cache=cache, number=number, series=stream, ranges=ranges, bytes_max=bytes_max):
                    if cache == ARCHIVE:
                        self._ask_archive(number, stream, ranges, bytes_max)
                        continue
                    asked = (cache, number, stream, ranges, bytes_max)
                    out.append(self.inquiries.recover(self, *asked, deep=True))
                case recovering.SurveyCache():
                    raise AssertionError("a node provides history itself")
                case subscribing.SubscriptionEnded(text=text):
                    self._ended(text)
        if out:
            self.say(*map(encode, out))

    # -- unsubscribing

    def leave(self, forget: bool) -> None:
        """Send all outcomes, unsubscribe, and end a little later. Further calls do nothing."""
        if self._leaves:
            return
        self._application.flush()
        self._leaves = "for good" if forget and self.durable else "for now"
        self.world.tell(self.name, "leaves", self._leaves)
        if self._leaves == "for good" and self.is_connected:
            self.is_retired = True  # until the node has confirmed that it is forgotten
            self.seen.asked_to_be_forgotten()
        self.say(encode(Unsubscribe(1, forget=self._leaves == "for good")))
        self.after(LEAVE_S, self.crash)

    def _ended(self, text: str) -> None:
        self._has_left = bool(self._leaves)
        if not self._leaves:
            self.world.witness.blame(f"{self.name} was ended: {text}")
        elif self._leaves == "for good":
            self.is_retired = False
            self.world.witness.forget(self.name)

    # -- caches

    def _ask_archive(self, number: int, series: Series, ranges: list[Range], bytes_max: int) -> None:
        self.world.tell(self.name, "asks the archive for", name_of(series), ranges)
        self.world.archive.ask(self, self.after, number, series, ranges, bytes_max)

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        self.world.tell(self.name, "recovered", *batches)
        self._receive(recovering.BatchesRecovered(batches), cache)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self._receive(recovering.CacheAnswered(number, covered, is_last), cache)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        self._receive(recovering.CacheSurveyed(number, spans, is_last), cache)

    def unreachable(self, cache: Peer) -> None:
        self._receive(recovering.CacheUnreachable(), cache)

    def judge_rest(self, queue: Queue | None) -> None:
        """Check that the machine is back at its resting size; `queue` is the node's side of it."""
        witness = self.world.witness
        may_hang = bool(self.world.plan.lease_s and self.world.plan.hang)
        witness.blame_all(self.name, subscribers_forget(self.name, self.machine, may_hang))
        if queue is not None:
            witness.blame_all(self.name, windows_are_free(self.name, self.machine, queue))

    @property
    def queue_key(self) -> tuple[object, int]:
        """The key of its queue at the node."""
        return self.connection, 1

    @property
    def connection(self) -> int:
        """The number of its connection; 0 if there is none."""
        return 0 if self._end is None else self._end.number

    @property
    def is_done(self) -> bool:
        is_searching = self._recovery is not None and self._recovery.is_searching
        comes_again = self.machine._recovered.next_deadline() is not None
        has_all = self._application.is_idle and not (is_searching or comes_again) and self.machine.is_settled
        return self.is_retired or (self.is_connected and has_all)

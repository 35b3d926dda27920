"""A node in a simulation: the production core with a simulated network, disk and clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from reknit.config import Config, DispatchSettings, LimitSettings, RetentionSettings, TopicSettings
from reknit.config.quotas import Quotas
from reknit.errors import JournalFull
from reknit.frame import Buffer
from reknit.ledger import QUEUES
from reknit.node.core.core import Core
from reknit.node.core.core_quotas import CoreQuotas
from reknit.protocol.machine import Peer
from reknit.store.log.retention import Retention
from reknit.testing.checks.ledgers import EXPIRY_S_MAX
from reknit.testing.checks.queue_audit import QueueAudit
from reknit.testing.checks.rest import (
    cores_forget,
    deadlines_are_met,
    orders_are_answered,
    pauses_end,
    queues_are_those_of_subscriptions,
    room_is_used,
)
from reknit.testing.clock import START_US, Timer
from reknit.testing.faults import ORDERED_ATTEMPTS_MAX, ORDERED_TOPIC, FaultPlan
from reknit.testing.network import ConnectionEnd
from reknit.testing.world import World
from reknit.topic import Pattern
from reknit.trust.refusals import Refusals
from reknit.wire.codec import Decoder, Frames, Item, encode
from reknit.wire.messages import (
    VERSION,
    Answer,
    Ask,
    Bye,
    Credit,
    Declare,
    Hello,
    Ping,
    Settle,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from reknit.wire.recovery import Recover

COMMIT_RETRY_S = 0.1
OPERATOR = "admin"
"""The peer that gives orders."""
MEMORY_RULE = TopicSettings(pattern=Pattern("plant/b"), durability="memory")
ORDERED_RULE = TopicSettings(
    pattern=Pattern(ORDERED_TOPIC), order="source", attempts_max=ORDERED_ATTEMPTS_MAX
)


def _rules(plan: FaultPlan) -> tuple[TopicSettings, ...]:
    rules = [MEMORY_RULE] if plan.memory_topics else []
    rules += [ORDERED_RULE] if plan.is_ordered else []
    if plan.queue_events_max and plan.overflow != "withhold":
        rules = [replace(rule, overflow=plan.overflow) for rule in [*rules, TopicSettings()]]
    return tuple(rules)


class SimNode:
    """A node that starts, serves, crashes without its unsynced data, and starts again."""

    def __init__(self, name: str, world: World, rng: Random) -> None:
        self.name = name
        self.is_up = False
        self._world = world
        self._rng = rng
        plan = world.plan
        self.config = Config(
            retention=RetentionSettings(count_max=plan.retain_events, protect_unsettled=plan.retain_owed),
            dispatch=DispatchSettings(
                retry_backoff_s_min=0.05,
                retry_backoff_s_max=0.4,
                attempts_max=plan.attempts_max,
                crash_attempts_max=plan.crash_attempts_max,
                lease_s=plan.lease_s,
            ),
            limits=LimitSettings(queue_events_max=plan.queue_events_max),
            topics=_rules(plan),
        )
        self.journal = world.parts.journal(
            Retention(count_max=plan.retain_events or None),
            staged_bytes_max=plan.staged_bytes_max,
            segment_bytes=plan.segment_bytes,
            now_us=world.clock.now_us,
            id=f"{name}'s journal",
        )
        self.core: Core
        self._life = 0
        self._orders_given = 0

    # -- life

    def start(self) -> None:
        """Start with the journal in its current state."""
        self._life += 1
        self._peers: dict[int, tuple[ConnectionEnd, Decoder]] = {}
        self._out: dict[int, list[Buffer]] = {}
        self._orders: dict[int, str] = {}
        """Orders without an answer."""
        self._is_committing = False
        self._wanted: tuple[int, bool] | None = None
        self._timer: Timer | None = None
        self._ticked: tuple[float, int] = (-1.0, 0)
        """When the core was told of the time last, and how often since the time moved."""
        clock = self._world.clock
        parts = (self.name, f"{self.name}'s journal", self.journal, self.config, self, self._rng)
        self.core = self._world.parts.core(
            *parts, zero_us=START_US, now_us=clock.now_us, quotas=self._quotas()
        )
        if self._world.plan.search_step:
            self.core.openings.step_cost = self.core.recovery.walks.step = self._world.plan.search_step
        if self._world.plan.members:
            QueueAudit(self.core.dispatch, self.journal, self._world.witness.blame).watch()
        self.is_up, self._up_at = True, self._world.clock.now
        self._world.network.listen(self.name, self)
        self._world.witness.node_started(self.name)
        self._after(self._world.plan.trim_s, self._trim)
        self._world.tell(self.name, "is up, its journal ends at", self.journal.end)

    def _quotas(self) -> CoreQuotas | None:
        """Everybody is the same identity, so that publishers wait for each other."""
        rate = self._world.plan.quota_events_per_s
        quotas = Quotas([f"* events_per_s={rate}"] if rate else [])
        return CoreQuotas(quotas, lambda peer: "all", self.journal.ledger, Refusals()) if rate else None

    def crash(self) -> None:
        """Lose everything that is not synced. A commit that is running may have reached the disk."""
        self.is_up = False
        self._life += 1
        self._world.network.crash(self.name)
        self._world.witness.resumed(self.name)
        if self._is_committing and self._rng.random() < self._world.plan.unsynced_survives_share:
            self.journal.commit()  # nobody is told
        staged = self.journal.staged_bytes
        self.journal = self.journal.crash(self.journal.end if self._world.plan.memory_topics else None)
        self._world.tell(self.name, "crashed, bytes lost:", staged)

    def _after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run an action later, unless the node has crashed by then."""
        life = self._life
        return self._world.clock.after(delay_s, lambda: action() if self._life == life else None)

    @property
    def is_busy(self) -> bool:
        """Whether something waits for the disk, or for delivery or redelivery."""
        queues = self.core.dispatch.queues.values()
        return (
            self._is_committing
            or bool(len(self.core.scheduling.schedule))
            or not all(queue.is_idle for queue in queues)
        )

    def pause(self, pattern: str) -> None:
        """Pause topics."""
        self._world.witness.paused(self.name, pattern)
        self.order("pause", pattern=pattern)

    def resume(self, pattern: str) -> None:
        """Resume topics."""
        self._world.witness.resumed(self.name, pattern)
        self.order("resume", pattern=pattern)
        self._world.witness.blame_all(self.name, pauses_end(self.core.dispatch.pauses))

    def order(self, what: str, **args: Any) -> None:
        """Tell the node what an operator wants."""
        self._world.tell(self.name, what, args)
        self._orders_given += 1
        self._orders[self._orders_given] = what
        self.core.order(Ask(self._orders_given, what, args), OPERATOR, self._world.clock.now)
        self._run()

    @property
    def paused(self) -> list[str]:
        return self.core.dispatch.pauses.patterns

    def judge_rest(self, subscriptions: int) -> None:
        """Check that the core is back at its resting size; `subscriptions` is how many programs have one here."""
        witness, queues = self._world.witness, len(self.core.dispatch.queues)
        witness.blame_all(self.name, cores_forget(self.name, self.core, len(self._peers)))
        witness.blame_all(self.name, orders_are_answered(self.name, self._orders))
        witness.blame_all(self.name, queues_are_those_of_subscriptions(self.name, queues, subscriptions))

    # -- connections

    def opened(self, end: ConnectionEnd) -> None:
        self._peers[end.number] = (end, Decoder())
        self.core.joined(end.number, self._world.clock.now)

    def received(self, end: ConnectionEnd, data: bytes) -> None:
        known = self._peers.get(end.number)
        if known is None:
            return
        for item in known[1].feed(data):
            self._take(item, end)
        self._run()

    def _take(self, item: Item, end: ConnectionEnd) -> None:
        match item:
            case Hello():
                welcome = Welcome(VERSION, self.name, self.core.epoch, 1.0, 1 << 20)
                self.send(end.number, [encode(welcome)])
            case Frames() | Declare() | Credit() | Settle() | Unsubscribe() | Subscribe():
                self._world.tell(f"{self.name} < {end.other.host}", item)
                if isinstance(item, Subscribe):
                    self._world.witness.subscribed(QUEUES + item.queue if item.queue else item.name)
                self.core.receive(item, end.number, self._world.clock.now)
            case Recover():
                self._world.tell(f"{self.name} < {end.other.host}", item)
                self.core.recovery.receive(item, end.number, self._world.clock.now)
            case Ping() | Bye():
                pass
            case _:
                self._world.witness.blame(f"{self.name} was sent {item!r}")

    def blocked(self, end: ConnectionEnd, is_blocked: bool) -> None:
        if end.number in self._peers:
            self._world.tell(self.name, "blocked" if is_blocked else "unblocked", end.other.host)
            self.core.blocked(end.number, is_blocked, self._world.clock.now)
            self._run()

    def lost(self, end: ConnectionEnd) -> None:
        if self._peers.pop(end.number, None) is not None:
            self._world.tell(self.name, "lost the connection of", end.other.host)
            self.core.left(end.number, self._world.clock.now, is_abrupt=True)
            self._run()

    # -- the core's shell

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Collect the messages of one turn, and send them together, as on a real connection."""
        if peer == OPERATOR:
            for item in Decoder().feed(b"".join(buffers)):
                if isinstance(item, Answer) and self._orders.pop(item.id, None) == "cancel":
                    self._world.witness.scheduled.cancelled(self.name, item.body["ids"])
        elif isinstance(peer, int) and peer in self._peers:
            self._out.setdefault(peer, []).extend(buffers)

    def _run(self) -> None:
        self.core.run(self._world.clock.now)
        out, self._out = self._out, {}
        for peer, buffers in out.items():
            self._peers[peer][0].send(b"".join(buffers))
        due = self.core.next_deadline()
        self._world.witness.blame_all(self.name, room_is_used(self.core, due, self._world.clock.now))
        if due is not None and (self._timer is None or due < self._timer.due or self._timer.action is None):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._after(max(due - self._world.clock.now, 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now, (before, ticks) = self._world.clock.now, self._ticked
        self._ticked = (now, ticks + 1 if now == before else 1)
        self.core.tick(now)
        self._run()
        due = self.core.next_deadline()
        self._world.witness.blame_all(self.name, deadlines_are_met(self.name, due, now, self._ticked[1]))

    def _trim(self) -> None:
        start = self.journal.start
        self._world.witness.letters.read(self)
        self._world.witness.scheduled.read(self)
        self._world.archive.fill(self.journal)
        if self._world.clock.now > self._up_at + EXPIRY_S_MAX:
            self._world.witness.check_expiry(self)
        self.core.trim(self._world.clock.now)
        if self.journal.start != start:
            self._world.tell(self.name, "removed entries before", self.journal.start)
        self._run()
        self._after(self._world.plan.trim_s, self._trim)

    def commit(self, number: int, sync: bool) -> None:
        """Commit, or wait for a running commit: the next one commits everything staged meanwhile."""
        self._wanted = (number, sync or (self._wanted is not None and self._wanted[1]))
        if not self._is_committing:
            self._start_commit()

    def _start_commit(self) -> None:
        assert self._wanted is not None
        (number, sync), self._wanted = self._wanted, None
        self._is_committing = True
        self._after(self._rng.uniform(0.0, self._world.plan.commit_s_max), lambda: self._commit(number, sync))

    def _commit(self, number: int, sync: bool) -> None:
        now = self._world.clock.now
        if not self._world.is_calm and self._rng.random() < self._world.plan.commit_failure_share:
            self._world.tell(self.name, "could not commit")
            self.core.failed(JournalFull("the disk is full", self.name), now)
            self._run()
            self._after(COMMIT_RETRY_S, lambda: self._commit(number, sync))
            return
        end = self.journal.commit(sync)
        self._is_committing = False
        if self._wanted is not None:
            self._start_commit()
        self.core.durable(number, end, now)
        self._run()

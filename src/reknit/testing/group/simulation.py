"""A whole group in virtual time, from a plan to a verdict.

>>> run(7).problems
[]
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from reknit.errors import MalformedFrame
from reknit.protocol.multicast.effects import (
    DeadLetteredEvents,
    DeliverBatch,
    GroupEffect,
    LeftGroup,
    LostEvents,
    SendBatch,
    SendDone,
    SendFailed,
    SendPieces,
    SendToAddress,
    SendToGroup,
    ViewInstalled,
)
from reknit.protocol.multicast.member import GroupMember
from reknit.protocol.multicast.membership import Membership
from reknit.testing.clock import Clock, Timer
from reknit.testing.faults import FaultPlan
from reknit.testing.group.checks import check_all, is_at_rest
from reknit.testing.group.member import SimMember
from reknit.testing.group.plan import GroupPlan
from reknit.testing.group.stranger import Stranger
from reknit.testing.network import Network
from reknit.testing.shrink import replay_settings
from reknit.view import Member, View
from reknit.wire.bundle import Bundler, Item, group_hash, unbundle
from reknit.wire.groups import GroupPiece

GROUP: Final = group_hash("robots")
EPOCH_S: Final = 1000.0
DATAGRAMS_MAX: Final = 300_000
"""With more, the members only keep each other busy."""
SEEDS: Final = tuple(f"10.0.0.{number}:1" for number in range(8))
"""Where members look for each other without multicast; any of them may be gone."""
REST_S: Final = 40.0
"""How long the group may take to come to rest once the faults are over."""
GRACE_S: Final = 2.0
"""How long it has to stay at rest."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """How the simulation of a group ended."""

    plan: GroupPlan
    problems: list[str]
    steps: int
    events: int
    trace: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.problems

    @property
    def command(self) -> str:
        """The command that replays this run."""
        settings = replay_settings(self.plan, GroupPlan.from_seed(self.plan.seed))
        return f"make sim GROUP=1 SEED={self.plan.seed}" + (f' SET="{settings}"' if settings else "")


def run(seed: int) -> GroupVerdict:
    """Run a seed."""
    return run_plan(GroupPlan.from_seed(seed))


def run_plan(plan: GroupPlan, is_traced: bool = False) -> GroupVerdict:
    """Run a plan, and judge it."""
    simulation, problems = GroupSimulation(plan), list[str]()
    try:
        simulation.run().check()
    except AssertionError as error:
        problems.append(str(error) or traceback.format_exc())
    except Exception:
        problems.append(traceback.format_exc())
    trace = [simulation.summary()] if is_traced else []
    events = sum(len(one.sent) for one in simulation.nodes)
    return GroupVerdict(plan, problems, simulation.steps, events, trace)


class GroupSimulation:
    """Runs a plan from a seed; the same seed gives the same run."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self._settings = plan.settings
        self.rng = Random(plan.seed)
        self._stranger = Stranger(Random(plan.seed + 1))
        self._clock = Clock(EPOCH_S)
        self._network = Network(self._clock, FaultPlan(seed=plan.seed), self.rng, datagram_faults=plan)
        self.nodes: list[SimMember] = []
        self.by_id: dict[bytes, SimMember] = {}
        self.datagrams = 0
        self.is_sending = True
        self._tickets = itertools.count(1)
        self._aftershocks = plan.aftershocks
        self.refused = 0
        """How many datagrams were malformed."""

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def steps(self) -> int:
        return self._clock.steps

    def at(self, when: float, what: Callable[[], None]) -> Timer:
        return self._clock.at(when, what)

    # -- programs

    def start(self) -> SimMember:
        number = len(self.nodes)
        me = Member(self.rng.randbytes(16), f"n{number}", f"10.0.0.{number}:1")
        seeds = () if self.plan.is_multicast_reachable else SEEDS
        membership = Membership(me, self._settings, Random(self.rng.random()), seeds, self.now)
        machine = GroupMember("robots", self._settings, membership, Random(self.rng.random()))
        size = self._settings.piece_bytes + 100
        node = SimMember(me.name, machine, Bundler(GROUP, me.id, size))
        self.nodes.append(node)
        self.by_id[me.id] = node
        self.step(node)
        self.at(self.now, lambda: self.traffic(node))
        return node

    def crash(self, node: SimMember) -> None:
        node.is_alive = False

    def leave(self, node: SimMember) -> None:
        node.is_leaving = True
        node.views_at_leave = {other.id: len(other.views) for other in self.nodes}
        node.machine.leave(self.now)
        self.step(node)

    def traffic(self, node: SimMember) -> None:
        if not node.is_alive or node.is_leaving or not self.is_sending:
            return
        if node.machine.view is not None and len(node.open_tickets) < 5:
            self.send(node, self.rng.randint(1, self.plan.events_max))
        self.at(self.now + self.rng.expovariate(self.plan.sends_per_s), lambda: self.traffic(node))

    def send(self, node: SimMember, count: int) -> None:
        payloads = [self.rng.randbytes(self.rng.randint(0, self.plan.payload_max)) for _ in range(count)]
        ticket = next(self._tickets)
        if node.machine.multicast.send(payloads, self.now, ticket) < count:
            node.open_tickets.add(ticket)
        self.step(node)

    def step(self, node: SimMember) -> None:
        """The end of a turn: tick, perform, set the timer."""
        if not node.is_alive:
            return
        node.machine.tick(self.now)
        self.perform(node)
        deadline = node.machine.next_deadline()
        if deadline is not None:
            when = max(deadline, self.now + 1e-6)
            if when < node.timer or node.timer <= self.now:
                node.timer = when
                self.at(when, lambda: self.wake(node, when))

    def wake(self, node: SimMember, when: float) -> None:
        if node.timer == when:
            node.timer = float("inf")
            self.step(node)

    # -- effects

    def perform(self, node: SimMember) -> None:
        while effects := node.machine.take_effects():
            for effect in effects:
                self.perform_one(node, effect)

    def perform_one(self, node: SimMember, effect: GroupEffect) -> None:
        match effect:
            case SendToGroup():
                node.bundler.add(effect.message)
                self.carry(node, effect.peer)
            case SendBatch():
                node.bundler.add_batch(effect.batch, effect.size, effect.pieces)
                self.carry(node, effect.peer)
            case SendPieces():
                for piece in effect.pieces:
                    node.bundler.add_piece(piece)
                self.carry(node, effect.peer)
            case SendToAddress():
                node.bundler.add(effect.message)
                peer = next((n.id for n in self.nodes if n.machine.me.address == effect.address), b"")
                self.carry(node, peer)
            case DeliverBatch(source, batch):
                self.note(node, source, batch.first, batch.payloads(), batch.count)
                if source == node.id:
                    node.sent += batch.payloads()
                self.hand(node, source, batch.stop - 1)
            case LostEvents(source, start, stop):
                node.lost += stop - start
                self.note(node, source, start, None, stop - start)
                self.hand(node, source, stop - 1)
            case SendDone(ticket):
                node.open_tickets.discard(ticket)
            case SendFailed():
                node.open_tickets.discard(effect.ticket)
            case ViewInstalled():
                self.follow_up(node, effect.view)
                node.views.append(effect.view)
            case DeadLetteredEvents():
                node.dead[effect.member].add(effect.start, effect.stop)
            case LeftGroup(why):
                node.is_alive, node.why_left = False, why
                node.machine.multicast.close(self.now)
            case _:
                pass

    def note(
        self, node: SimMember, source: bytes, first: int, payloads: list[bytes] | None, count: int
    ) -> None:
        if source in self.by_id:  # a stranger may be admitted, and send
            node.got.setdefault(source, []).append((first, payloads, count))

    def hand(self, node: SimMember, source: bytes, seq: int) -> None:
        def done() -> None:
            if node.is_alive:
                node.machine.multicast.mark_delivered(source, seq, self.now)
                self.step(node)

        delay = max(self.plan.slow_hand_s * self.rng.random(), node.stuck_until - self.now)
        if delay > 0:
            self.at(self.now + delay, done)
        else:
            node.machine.multicast.mark_delivered(source, seq, self.now)

    def follow_up(self, node: SimMember, view: View) -> None:
        """After one member left, sometimes the next one leaves too, before the others have finished with the first."""
        has_lost = bool(node.views and set(node.views[-1].ids) - set(view.ids))
        if has_lost and self._aftershocks and not node.is_leaving and self.rng.random() < 0.5:
            self._aftershocks -= 1
            delay = self.rng.random() * self.plan.aftershock_s
            self.at(self.now + delay, lambda: self.pick(self.leave, [node]))

    # -- the network

    def carry(self, node: SimMember, peer: bytes | None) -> None:
        window = node.machine.multicast.sender.outbox.window
        for datagram in node.bundler.take(window.acked):
            if self.plan.hostile_per_s:
                self._stranger.overhear(datagram)
            for target in self.targets(node, peer):
                self.transmit(node.name, target, datagram)

    def targets(self, node: SimMember, peer: bytes | None) -> list[SimMember]:
        if peer is not None:
            return [self.by_id[peer]] if peer in self.by_id else []
        if self.plan.is_multicast_reachable:
            return [other for other in self.nodes if other is not node]
        view = node.machine.view
        return [self.by_id[member] for member in view.ids if member != node.id] if view is not None else []

    def transmit(self, sender: str, target: SimMember, datagram: bytes) -> None:
        if target.is_alive:
            self._network.send_datagram(sender, target.name, partial(self.arrive, target, datagram))

    def arrive(self, node: SimMember, datagram: bytes) -> None:
        if not node.is_alive:
            return
        self.datagrams += 1
        assert self.datagrams < DATAGRAMS_MAX, "a storm of datagrams"
        try:
            sender, items = unbundle(datagram, GROUP)
        except MalformedFrame:
            self.refused += 1
            return
        for item in items:
            self.hear(node, item)
            node.machine.receive(item, sender, self.now)
            self.perform(node)
        self.step(node)

    def hear(self, node: SimMember, item: Item) -> None:
        """Note the events that a member's window takes: they must be delivered or reported as lost later."""
        if not isinstance(item, GroupPiece):
            return
        receiver = node.machine.multicast.receivers.get(item.source)
        if receiver is not None and receiver.departure is None:
            last, window = item.first + item.count - 1, receiver.window
            if last - window.acked <= window.capacity:
                node.heard[item.source] = max(last, node.heard.get(item.source, 0))

    # -- a whole run

    def run(self) -> GroupSimulation:
        plan = self.plan
        for _ in range(plan.members):
            self.at(self.now + self.rng.random() * 0.2, lambda: void(self.start()))
        began = self.now + plan.start_s
        self._clock.run(began)
        for _ in range(plan.joins):
            self.at(began + self.rng.random() * plan.seconds, lambda: void(self.start()))
        for _ in range(plan.leaves):
            self.at(began + self.rng.random() * plan.seconds, lambda: self.pick(self.leave))
        for _ in range(plan.crashes):
            self.at(began + self.rng.random() * plan.seconds, lambda: self.pick(self.crash))
        for _ in range(plan.stucks):
            self.at(began + self.rng.random() * plan.seconds, lambda: self.pick(self.stick))
        for _ in range(plan.partitions):
            self.at(began + self.rng.random() * plan.seconds, self.divide)
        if plan.hostile_per_s:
            self.at(began, self.attack)
        self._clock.run(began + plan.seconds)
        self.is_sending = False
        self.rest()
        return self

    def rest(self) -> None:
        """Wait until everything has settled, and stays so for a while."""
        until = self.now + REST_S + self.plan.partitions * self.plan.partition_s
        since = None
        while self.now < until and (since is None or self.now < since + GRACE_S):
            self._clock.run(self.now + 0.5)
            since = (self.now if since is None else since) if is_at_rest(self) else None

    def attack(self) -> None:
        """A stranger sends a datagram to a member."""
        there = self.survivors()
        datagram = self._stranger.datagram()
        if there and datagram:
            self.transmit("stranger", self._stranger.choice(there), datagram)
        if self.is_sending:
            self.at(self.now + 1 / self.plan.hostile_per_s, self.attack)

    def pick(self, what: Callable[[SimMember], None], among: Sequence[SimMember] = ()) -> None:
        there = [n for n in self.nodes if n.is_alive and not n.is_leaving]
        choices = [n for n in there if n in among] if among else there
        if len(there) > 2 and choices:
            what(self.rng.choice(choices))

    def stick(self, node: SimMember) -> None:
        """A program reads nothing for a while."""
        node.stuck_until = self.now + self.plan.stuck_s

    def divide(self) -> None:
        """Separate half of the members from the others, also from those that join later."""
        there = [node.name for node in self.nodes if node.is_alive]
        half = set(there[: len(there) // 2])
        everyone = {f"n{number}" for number in range(self.plan.members + self.plan.joins)}
        self._network.heal()
        self._network.partition(half, everyone - half, one_way=False)
        self.at(self.now + self.plan.partition_s, self._network.heal)

    # -- invariants

    def check(self) -> None:
        """Raise `AssertionError` if a promise is broken."""
        check_all(self)

    def survivors(self) -> list[SimMember]:
        return [node for node in self.nodes if node.is_alive]

    def summary(self) -> str:
        there = self.survivors()
        got = sum(count for n in there for items in n.got.values() for _, p, count in items if p is not None)
        sent = sum(len(n.sent) for n in self.nodes)
        lost = sum(n.lost for n in there)
        return (
            f"seed {self.plan.seed}: {sent} sent by {len(self.nodes)}, {got} delivered to {len(there)} survivors, "
            f"{lost} lost, {self.datagrams} datagrams, loss {self.plan.loss:.1%}"
        )


def void(_: object) -> None:
    return None

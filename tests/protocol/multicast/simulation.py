"""A whole group in virtual time: real machines and real datagrams over a network that loses, repeats and reorders.

python -m tests.protocol.multicast.simulation --seed 7         replays one run and prints what happened
python -m tests.protocol.multicast.simulation --seeds 500      runs many
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

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
from reknit.protocol.multicast.settings import GroupSettings, SlowMember
from reknit.seqset import SeqSet
from reknit.testing.clock import Clock, Timer
from reknit.testing.faults import FaultPlan
from reknit.testing.network import Network
from reknit.view import Member, View
from reknit.wire.bundle import Bundler, Item, group_hash, unbundle
from reknit.wire.groups import GroupPiece
from tests.protocol.multicast.simulation_checks import check_all

GROUP = group_hash("robots")
EPOCH_S = 1000.0
DATAGRAMS_MAX = 300_000
"""With more, the members only keep each other busy."""


SMALL = GroupSettings(
    capacity_events=200,
    window_bytes=40_000,
    batch_bytes_max=4_000,
    piece_bytes=700,
    suspect_s=4.0,
    slow_s=1.0,
)
SEEDS = tuple(f"10.0.0.{number}:1" for number in range(8))
"""Where members look for each other without multicast; any of them may be gone."""


@dataclass(frozen=True)
class Plan:
    """All faults, in one place."""

    members: int = 3
    seconds: float = 4.0
    loss: float = 0.0
    repeat: float = 0.0
    delay_s: float = 0.0005
    jitter_s: float = 0.0
    late: float = 0.0
    """How many of the datagrams come so late that views may have changed meanwhile, by up to `late_s` more."""
    late_s: float = 1.0
    sends_per_s: float = 300.0
    events_max: int = 20
    payload_max: int = 300
    slow_hand_s: float = 0.0
    joins: int = 0
    leaves: int = 0
    aftershocks: int = 0
    """How many leave just after another one, while the survivors exchange its events."""
    aftershock_s: float = 0.2
    crashes: int = 0
    partitions: int = 0
    partition_s: float = 6.0
    stucks: int = 0
    """How often a program reads nothing for a while."""
    stuck_s: float = 2.5
    is_multicast_reachable: bool = True
    settings: GroupSettings = SMALL

    def delays_s(self, rng: Random) -> list[float]:
        """The delays of a datagram's copies. The order of the draws is part of every seed."""
        return [
            self._delay_s(rng) for _ in range(1 + (rng.random() < self.repeat)) if rng.random() >= self.loss
        ]

    def _delay_s(self, rng: Random) -> float:
        delay_s = self.delay_s + rng.random() * self.jitter_s
        if self.late and rng.random() < self.late:
            delay_s += rng.random() * self.late_s
        return delay_s


def random_plan(seed: int) -> Plan:
    """A plan as different from the next one as possible."""
    rng = Random(seed ^ 0xA5A5)
    return Plan(
        members=rng.randint(2, 4),
        seconds=rng.choice([1.0, 2.0, 4.0]),
        loss=rng.choice([0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3]),
        repeat=rng.choice([0.0, 0.0, 0.1, 0.3]),
        delay_s=rng.choice([0.0005, 0.01]),
        jitter_s=rng.choice([0.0, 0.0005, 0.005, 0.05]),
        sends_per_s=rng.choice([10.0, 100.0, 300.0]),
        slow_hand_s=rng.choice([0.0, 0.0, 0.01]),
        joins=rng.choice([0, 0, 1, 2]),
        leaves=rng.choice([0, 0, 1]),
        crashes=rng.choice([0, 0, 1, 2]),
        partitions=rng.choice([0, 0, 0, 1]),
        stucks=rng.choice([0, 0, 1, 2]),
        is_multicast_reachable=rng.random() < 0.8,
        settings=msgspec.structs.replace(SMALL, slow_member=rng.choice(list(SlowMember))),
        late=rng.choice([0.0, 0.0, 0.1, 0.3]),
        aftershocks=rng.choice([0, 0, 1]),
    )


@dataclass
class Node:
    """One simulated program."""

    name: str
    machine: GroupMember
    bundler: Bundler
    is_alive: bool = True
    is_leaving: bool = False
    sent: list[bytes] = field(default_factory=list)
    got: dict[bytes, list[tuple[int, list[bytes] | None, int]]] = field(default_factory=dict)
    dead: dict[bytes, SeqSet] = field(default_factory=lambda: defaultdict(SeqSet))
    """By slow member: the events of this one that it did not take."""
    open_tickets: set[int] = field(default_factory=set)
    lost: int = 0
    timer: float = float("inf")
    stuck_until: float = 0.0
    heard: dict[bytes, int] = field(default_factory=dict)
    """The last seq of each source of which anything came while it was a member."""
    views: list[View] = field(default_factory=list)

    @property
    def id(self) -> bytes:
        return self.machine.me.id

    def has_had_always(self, member: bytes) -> bool:
        """True if this member was in every view from the first on that it was in."""
        there = [member in view for view in self.views]
        return all(there[there.index(True) :]) if any(there) else False

    def has_had_back(self, member: bytes) -> bool:
        """True if this member was removed from a view and came back."""
        there = [member in view for view in self.views]
        return any(there[at] and not there[at - 1] and any(there[:at]) for at in range(1, len(there)))

    def seqs(self, source: bytes, *, lost: bool) -> SeqSet:
        """The events of a source that were delivered or lost."""
        items = self.got.get(source, [])
        wanted = [item for item in items if (item[1] is None) == lost]
        return SeqSet.from_ranges((first, first + count) for first, _, count in wanted)


class Simulation:
    """Runs a plan from a seed; the same seed gives the same run."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan if plan is not None else random_plan(seed)
        self.rng = Random(seed)
        self._clock = Clock(EPOCH_S)
        self._network = Network(self._clock, FaultPlan(seed=seed), self.rng, datagram_faults=self.plan)
        self.nodes: list[Node] = []
        self.by_id: dict[bytes, Node] = {}
        self.datagrams = 0
        self.is_sending = True
        self._tickets = itertools.count(1)
        self._aftershocks = self.plan.aftershocks

    @property
    def now(self) -> float:
        return self._clock.now

    def at(self, when: float, what: Callable[[], None]) -> Timer:
        return self._clock.at(when, what)

    # -- programs

    def start(self) -> Node:
        number = len(self.nodes)
        me = Member(self.rng.randbytes(16), f"n{number}", f"10.0.0.{number}:1")
        seeds = () if self.plan.is_multicast_reachable else SEEDS
        membership = Membership(me, self.plan.settings, Random(self.rng.random()), seeds, self.now)
        machine = GroupMember("robots", self.plan.settings, membership, Random(self.rng.random()))
        size = self.plan.settings.piece_bytes + 100
        node = Node(me.name, machine, Bundler(GROUP, me.id, size))
        self.nodes.append(node)
        self.by_id[me.id] = node
        self.step(node)
        self.at(self.now, lambda: self.traffic(node))
        return node

    def crash(self, node: Node) -> None:
        node.is_alive = False

    def leave(self, node: Node) -> None:
        node.is_leaving = True
        node.machine.leave(self.now)
        self.step(node)

    def traffic(self, node: Node) -> None:
        if not node.is_alive or node.is_leaving or not self.is_sending:
            return
        if node.machine.view is not None and len(node.open_tickets) < 5:
            self.send(node, self.rng.randint(1, self.plan.events_max))
        self.at(self.now + self.rng.expovariate(self.plan.sends_per_s), lambda: self.traffic(node))

    def send(self, node: Node, count: int) -> None:
        payloads = [self.rng.randbytes(self.rng.randint(0, self.plan.payload_max)) for _ in range(count)]
        ticket = next(self._tickets)
        if node.machine.multicast.send(payloads, self.now, ticket) < count:
            node.open_tickets.add(ticket)
        self.step(node)

    def step(self, node: Node) -> None:
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

    def wake(self, node: Node, when: float) -> None:
        if node.timer == when:
            node.timer = float("inf")
            self.step(node)

    # -- effects

    def perform(self, node: Node) -> None:
        while effects := node.machine.take_effects():
            for effect in effects:
                self.perform_one(node, effect)

    def perform_one(self, node: Node, effect: GroupEffect) -> None:
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
            case LeftGroup():
                node.is_alive = False
                node.machine.multicast.close(self.now)
            case _:
                pass

    def note(self, node: Node, source: bytes, first: int, payloads: list[bytes] | None, count: int) -> None:
        node.got.setdefault(source, []).append((first, payloads, count))

    def hand(self, node: Node, source: bytes, seq: int) -> None:
        def done() -> None:
            if node.is_alive:
                node.machine.multicast.mark_delivered(source, seq, self.now)
                self.step(node)

        delay = max(self.plan.slow_hand_s * self.rng.random(), node.stuck_until - self.now)
        if delay > 0:
            self.at(self.now + delay, done)
        else:
            node.machine.multicast.mark_delivered(source, seq, self.now)

    def follow_up(self, node: Node, view: View) -> None:
        """After one member left, sometimes the next one leaves too, before the others have finished with the first."""
        has_lost = bool(node.views and set(node.views[-1].ids) - set(view.ids))
        if has_lost and self._aftershocks and not node.is_leaving and self.rng.random() < 0.5:
            self._aftershocks -= 1
            delay = self.rng.random() * self.plan.aftershock_s
            self.at(self.now + delay, lambda: self.pick(self.leave, [node]))

    # -- the network

    def carry(self, node: Node, peer: bytes | None) -> None:
        window = node.machine.multicast.sender.outbox.window
        for datagram in node.bundler.take(window.acked):
            for target in self.targets(node, peer):
                self.transmit(node, target, datagram)

    def targets(self, node: Node, peer: bytes | None) -> list[Node]:
        if peer is not None:
            return [self.by_id[peer]] if peer in self.by_id else []
        if self.plan.is_multicast_reachable:
            return [other for other in self.nodes if other is not node]
        view = node.machine.view
        return [self.by_id[member] for member in view.ids if member != node.id] if view is not None else []

    def transmit(self, node: Node, target: Node, datagram: bytes) -> None:
        if target.is_alive:
            self._network.send_datagram(node.name, target.name, partial(self.arrive, target, datagram))

    def arrive(self, node: Node, datagram: bytes) -> None:
        if not node.is_alive:
            return
        self.datagrams += 1
        assert self.datagrams < DATAGRAMS_MAX, "a storm of datagrams"
        sender, items = unbundle(datagram, GROUP)
        for item in items:
            self.hear(node, item)
            node.machine.receive(item, sender, self.now)
            self.perform(node)
        self.step(node)

    def hear(self, node: Node, item: Item) -> None:
        """Note the events that a member's window takes: they must be delivered or reported as lost later."""
        if not isinstance(item, GroupPiece):
            return
        receiver = node.machine.multicast.receivers.get(item.source)
        if receiver is not None and receiver.departure is None:
            last, window = item.first + item.count - 1, receiver.window
            if last - window.acked <= window.capacity:
                node.heard[item.source] = max(last, node.heard.get(item.source, 0))

    # -- a whole run

    def run(self) -> Simulation:
        plan = self.plan
        for _ in range(plan.members):
            self.at(self.now + self.rng.random() * 0.2, lambda: void(self.start()))
        began = self.now + 2.0
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
        self._clock.run(began + plan.seconds)
        self.is_sending = False
        self._clock.run(self.now + 40.0 + plan.partitions * plan.partition_s)
        return self

    def pick(self, what: Callable[[Node], None], among: Sequence[Node] = ()) -> None:
        there = [n for n in self.nodes if n.is_alive and not n.is_leaving]
        choices = [n for n in there if n in among] if among else there
        if len(there) > 2 and choices:
            what(self.rng.choice(choices))

    def stick(self, node: Node) -> None:
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
        try:
            check_all(self)
        except AssertionError as error:
            replay = f"replay: Simulation({self.seed}, plan).run().check()"
            if self.plan == random_plan(self.seed):
                replay = f"replay: python -m tests.protocol.multicast.simulation --seed {self.seed}"
            raise AssertionError(f"{error}\n{self.plan}\n{replay}") from None

    def survivors(self) -> list[Node]:
        return [node for node in self.nodes if node.is_alive]

    def summary(self) -> str:
        there = self.survivors()
        got = sum(count for n in there for items in n.got.values() for _, p, count in items if p is not None)
        sent = sum(len(n.sent) for n in self.nodes)
        lost = sum(n.lost for n in there)
        return (
            f"seed {self.seed}: {sent} sent by {len(self.nodes)}, {got} delivered to {len(there)} survivors, "
            f"{lost} lost, {self.datagrams} datagrams, loss {self.plan.loss:.1%}"
        )


def void(_: object) -> None:
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay simulated groups.")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else range(args.start, args.start + args.seeds)
    failed = 0
    for seed in seeds:
        run = Simulation(seed)
        try:
            run.run().check()
            sys.stdout.write(f"{run.summary()}\n")
        except Exception as error:
            failed += 1
            sys.stdout.write(f"FAILED {run.summary()}\n{type(error).__name__}: {error}\n")
            if args.seed is not None:
                raise
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

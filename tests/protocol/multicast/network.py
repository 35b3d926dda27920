"""A few multicast machines and a wire between them, in virtual time. A test decides which datagrams are dropped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from random import Random

from reknit.protocol.multicast.effects import (
    DeliverBatch,
    LostEvents,
    MulticastEffect,
    SendBatch,
    SendPieces,
    SendToGroup,
)
from reknit.protocol.multicast.multicast import Multicast
from reknit.protocol.multicast.settings import GroupSettings
from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.testing.network import Network
from reknit.view import Member, View
from reknit.wire.bundle import Bundler, unbundle
from reknit.wire.groups import GroupPiece, MulticastMessage

Item = GroupPiece | MulticastMessage
Drop = Callable[[str, str, Item], bool]


def member_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def name_of(member: bytes) -> str:
    return member.rstrip(b"\0").decode()


def view_of(names: str, counter: int = 1) -> View:
    return View(counter, member_id(names[0]), tuple(Member(member_id(name), name) for name in names))


class Instant:
    """Delivers every datagram at once."""

    def delays_s(self, rng: Random) -> list[float]:
        return [0.0]


class Wire:
    """Members with names of one letter. Records deliveries, losses and messages for tests."""

    def __init__(self, names: str, settings: GroupSettings | None = None) -> None:
        self.settings = settings if settings is not None else GroupSettings(capacity_events=10)
        self._clock = Clock(100.0)
        self._network = Network(self._clock, FaultPlan(seed=1), Random(1), datagram_faults=Instant())
        self.drop: Drop = lambda sender, receiver, item: False
        self.silent: set[str] = set()
        """Members whose application takes nothing."""
        self.machines: dict[str, Multicast] = {}
        self.got: dict[str, list[tuple[str, int, bytes]]] = {}
        self.lost: dict[str, list[tuple[str, int, int]]] = {}
        self.effects: dict[str, list[MulticastEffect]] = {}
        self.said: list[tuple[str, str | None, Item]] = []
        self._counter = 0
        for name in names:
            self.start(name)
        self.install(names)

    def start(self, name: str) -> Multicast:
        machine = Multicast(member_id(name), "robots", self.settings, Random(name))
        self.machines[name] = machine
        self.got[name], self.lost[name], self.effects[name] = [], [], []
        return machine

    def install(self, names: str, only: str | None = None) -> None:
        self._counter += 1
        for name in names if only is None else only:
            self.machines[name].install(view_of(names, self._counter), self.now)
        self.settle()

    def send(self, name: str, *payloads: bytes, ticket: Hashable = None, deadline: float = 1e9) -> int:
        accepted = self.machines[name].send(payloads, self.now, ticket, deadline)
        self.settle()
        return accepted

    def send_numbers(self, name: str, count: int) -> int:
        """Single events, each in a batch of its own."""
        return sum(self.send(name, b"%d" % number) for number in range(1, count + 1))

    def seqs(self, name: str, source: str) -> list[int]:
        return [seq for got_source, seq, _ in self.got[name] if got_source == source]

    def kinds(self, kind: type[Item]) -> list[tuple[str, str | None, Item]]:
        return [said for said in self.said if isinstance(said[2], kind)]

    # -- time

    @property
    def now(self) -> float:
        return self._clock.now

    def settle(self) -> None:
        """Run until nothing more happens at this time."""
        for _ in range(1000):
            for machine in list(self.machines.values()):
                machine.tick(self.now)
            has_effects = sum(self.perform(name) for name in list(self.machines)) > 0
            self._clock.run(self.now)
            if not has_effects:
                return
        raise AssertionError("the members never come to rest")

    def run(self, seconds: float) -> None:
        stop = self.now + seconds
        while True:
            self.settle()
            times = [at for machine in self.machines.values() if (at := machine.next_deadline()) is not None]
            if not times or min(times) > stop:
                self._clock.run(stop)
                return
            self._clock.run(max(self.now + 1e-6, min(times)))

    # -- effects

    def perform(self, name: str) -> bool:
        effects = self.machines[name].take_effects()
        for effect in effects:
            self.effects[name].append(effect)
            match effect:
                case DeliverBatch(source, batch):
                    events = enumerate(batch.payloads(), batch.first)
                    self.got[name] += [(name_of(source), seq, payload) for seq, payload in events]
                    self.hand(name, source, batch.stop - 1)
                case LostEvents(source, start, stop):
                    self.lost[name].append((name_of(source), start, stop))
                    self.hand(name, source, stop - 1)
                case SendToGroup():
                    assert isinstance(effect.message, MulticastMessage)
                    self.carry(name, effect.peer, [effect.message])
                case SendBatch():
                    bundler = Bundler(1, member_id(name), 60_000)
                    bundler.add_batch(effect.batch, effect.size, effect.pieces)
                    stable = self.machines[name].sender.outbox.window.acked
                    for datagram in bundler.take(stable):
                        items = unbundle(datagram, 1)[1]
                        self.carry(
                            name, effect.peer, [item for item in items if isinstance(item, GroupPiece)]
                        )
                case SendPieces():
                    self.carry(name, effect.peer, effect.pieces)
                case _:
                    pass
        return bool(effects)

    def hand(self, name: str, source: bytes, seq: int) -> None:
        if name not in self.silent:
            self.machines[name].mark_delivered(source, seq, self.now)

    def carry(self, name: str, peer: bytes | None, items: Sequence[Item]) -> None:
        receiver = None if peer is None else name_of(peer)
        for item in items:
            self.said.append((name, receiver, item))
            for other in self.machines if receiver is None else [receiver]:
                if other != name and other in self.machines and not self.drop(name, other, item):
                    self._network.send_datagram(name, other, partial(self.arrive, name, other, item))

    def arrive(self, name: str, other: str, item: Item) -> None:
        self.machines[other].receive(item, member_id(name), self.now)

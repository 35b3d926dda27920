"""Routes machines on a virtual network that loses, delays and reorders, for the tests of routes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random

from reknit.protocol.routing.routes import DropLink, Interests, LinkDown, LinkUp, Routes, SendToNeighbour
from reknit.protocol.routing.shortest_paths import Graph, shortest
from reknit.wire.messages import Message

BEAT_S, TIMEOUT_S = 1.0, 3.5


@dataclass
class Fabric:
    """Nodes by name, their links, and the messages between them."""

    rng: Random = field(default_factory=lambda: Random(1))
    loss: float = 0.0
    jitter_s: float = 0.0
    now: float = 0.0
    nodes: dict[str, Routes] = field(default_factory=dict)
    links: dict[frozenset[str], int] = field(default_factory=dict)
    edges: set[str] = field(default_factory=set)
    sent: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    _under_way: list[tuple[float, int, str, str, Message]] = field(default_factory=list)
    _lines: dict[tuple[str, str], float] = field(default_factory=dict)
    _instances: int = 0
    _count: int = 0

    def add(self, *names: str) -> None:
        """Start nodes, or restart them without their memory."""
        for name in names:
            self._instances += 1
            self.nodes[name] = Routes(name, self._instances, BEAT_S, TIMEOUT_S, name in self.edges)

    def link(self, one: str, two: str, cost: int = 1) -> None:
        self.links[frozenset((one, two))] = cost
        for name, other in ((one, two), (two, one)):
            self.nodes[name].receive(LinkUp(cost), other, self.now)
        self._collect()

    def cut(self, one: str, two: str) -> None:
        """The connection breaks, and both ends notice."""
        del self.links[frozenset((one, two))]
        self._under_way = [item for item in self._under_way if {item[2], item[3]} != {one, two}]
        heapq.heapify(self._under_way)
        for name, other in ((one, two), (two, one)):
            if name in self.nodes:
                self.nodes[name].receive(LinkDown(), other, self.now)
        self._collect()

    def kill(self, name: str, is_noticed: bool = True) -> None:
        """Kill a node. Without notice, its neighbours hear nothing more, and have to find out."""
        del self.nodes[name]
        for pair in [pair for pair in self.links if name in pair]:
            if is_noticed:
                self.cut(*pair)
            else:
                del self.links[pair]

    def subscribe(self, name: str, pattern: str, mode: str = "any", is_on: bool = True) -> None:
        interests = [(pattern, mode)]
        self.nodes[name].receive(
            Interests(interests if is_on else [], [] if is_on else interests), name, self.now
        )
        self._collect()

    def run(self, seconds: float) -> None:
        """Let some time pass."""
        end = self.now + seconds
        while True:
            due = [at for node in self.nodes.values() if (at := node.next_deadline()) is not None]
            due += [self._under_way[0][0]] if self._under_way else []
            at = min(due, default=end + 1)
            if at > end:
                self.now = end
                return
            self.now = max(self.now, at)
            self._turn()

    def settle(self) -> None:
        """Run without beats until nothing is under way."""
        while self._under_way:
            self.now = max(self.now, self._under_way[0][0])
            self._turn(with_ticks=False)

    def _turn(self, with_ticks: bool = True) -> None:
        while self._under_way and self._under_way[0][0] <= self.now:
            _, _, sender, receiver, message = heapq.heappop(self._under_way)
            if receiver in self.nodes and frozenset((sender, receiver)) in self.links:
                self.nodes[receiver].receive(message, sender, self.now)  # type: ignore[arg-type]
        if with_ticks:
            for node in self.nodes.values():
                due = node.next_deadline()
                if due is not None and due <= self.now:
                    node.tick(self.now)
        self._collect()

    def _collect(self) -> None:
        for name, node in list(self.nodes.items()):
            for effect in node.take_effects():
                match effect:
                    case SendToNeighbour(peer=peer, message=message):
                        self._send(name, str(peer), message)
                    case DropLink(peer=peer):
                        if frozenset((name, str(peer))) in self.links:
                            self.cut(name, str(peer))

    def _send(self, sender: str, receiver: str, message: Message) -> None:
        self.sent += 1
        kind = type(message).__name__
        self.by_type[kind] = self.by_type.get(kind, 0) + 1
        if self.rng.random() < self.loss:
            return
        self._count += 1
        at = self.now + 0.001 + self.rng.random() * self.jitter_s
        if not self.jitter_s:  # in order, as on one connection
            at = max(at, self._lines.get((sender, receiver), 0.0))
            self._lines[sender, receiver] = at
        heapq.heappush(self._under_way, (at, self._count, sender, receiver, message))

    # -- the model

    def graph(self) -> Graph:
        """The links as they are."""
        graph: Graph = {name: {} for name in self.nodes}
        for pair, cost in self.links.items():
            one, two = sorted(pair)
            graph[one][two] = graph[two][one] = cost
        return graph

    def check(self) -> None:
        """Check that every node's routes and subscriptions are those of the model."""
        graph = self.graph()
        for name, node in self.nodes.items():
            want = shortest(graph, name, self.edges)
            assert node.reachable() == want, name
            for other in want:
                assert node.known[other].interests == self.nodes[other].known[other].interests, (name, other)

"""Routes machines on the simulated network, which loses, delays and reorders their messages."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

from reknit.protocol.routing.routes import DropLink, Interests, LinkDown, LinkUp, Routes, SendToNeighbour
from reknit.protocol.routing.shortest_paths import Graph, shortest
from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.testing.network import DatagramLink, Network
from reknit.wire.messages import Message

BEAT_S, TIMEOUT_S = 1.0, 3.5


class Fabric:
    """Nodes by name, their links, and the messages between them."""

    def __init__(
        self,
        rng: Random | None = None,
        loss: float = 0.0,
        jitter_s: float = 0.0,
        edges: set[str] | None = None,
    ) -> None:
        self.loss = loss
        self.jitter_s = jitter_s
        """Without jitter, messages arrive in order, as on one connection."""
        self.nodes: dict[str, Routes] = {}
        self.links: dict[frozenset[str], int] = {}
        """The cost of each link."""
        self.edges = edges if edges is not None else set()
        self.sent = 0
        self.by_type: Counter[str] = Counter()
        self._clock = Clock()
        rng = rng if rng is not None else Random(1)
        self._network = Network(self._clock, FaultPlan(seed=1), rng, datagram_faults=self)
        self._links: dict[frozenset[str], DatagramLink] = {}
        self._instances = 0

    @property
    def now(self) -> float:
        return self._clock.now

    def delays_s(self, rng: Random) -> list[float]:
        return [] if rng.random() < self.loss else [0.001 + rng.random() * self.jitter_s]

    def add(self, *names: str) -> None:
        """Start nodes, or restart them without their memory."""
        for name in names:
            self._instances += 1
            self.nodes[name] = Routes(name, self._instances, BEAT_S, TIMEOUT_S, name in self.edges)

    def link(self, one: str, two: str, cost: int = 1) -> None:
        pair = frozenset((one, two))
        self.links[pair], self._links[pair] = cost, self._network.open_link()
        for name, other in ((one, two), (two, one)):
            self.nodes[name].receive(LinkUp(cost), other, self.now)
        self._collect()

    def cut(self, one: str, two: str) -> None:
        """The connection breaks, and both ends notice."""
        self._remove(frozenset((one, two)))
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
                self._remove(pair)

    def _remove(self, pair: frozenset[str]) -> None:
        del self.links[pair]
        self._links.pop(pair).cut()

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
            arrival = self._clock.next_due()
            at = min(due if arrival is None else [*due, arrival], default=end + 1)
            if at > end:
                self._clock.run(end)
                return
            self._clock.run(max(self.now, at))
            self._tick()
            self._collect()

    def settle(self) -> None:
        """Run without beats until nothing is under way."""
        while (arrival := self._clock.next_due()) is not None:
            self._clock.run(arrival)
            self._collect()

    def _tick(self) -> None:
        for node in self.nodes.values():
            due = node.next_deadline()
            if due is not None and due <= self.now:
                node.tick(self.now)

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
        self.by_type[type(message).__name__] += 1
        link = self._links.get(frozenset((sender, receiver)))
        if link is not None:
            link.send(sender, receiver, partial(self._arrive, sender, receiver, message))

    def _arrive(self, sender: str, receiver: str, message: Message) -> None:
        self.nodes[receiver].receive(message, sender, self.now)  # type: ignore[arg-type]

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

"""A node's core with anycast, without sockets and threads: commits end when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from reknit.batch import Batch
from reknit.config import Config, TopicSettings
from reknit.frame import Buffer
from reknit.node.anycast.anycast import NodeAnycast
from reknit.node.anycast.distributions import Distributions
from reknit.node.core.core import Core
from reknit.protocol.anycast.inputs import ReturnOutcome
from reknit.protocol.machine import Peer
from reknit.protocol.routing.routes import Routes, SendToNeighbour
from reknit.store.memory import MemoryJournal
from reknit.topic import Pattern
from reknit.wire.codec import Decoder, Frames
from reknit.wire.messages import Start, Subscribe

SOURCE = b"s" * 16
ORDERS = "orders/new"
RULES = (TopicSettings(pattern=Pattern("orders/**"), distribution="balanced"),)
PUBLISHER, SUBSCRIBER = 1, 2


class Neighbours:
    """In place of links: notes what is passed to neighbours."""

    is_due = False

    def __init__(self) -> None:
        self.got: list[tuple[Any, Peer]] = []

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        if isinstance(message, ReturnOutcome | SendToNeighbour):
            self.got.append((message, peer))

    def perform(self, now: float) -> None:
        """Nothing waits."""

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def next_deadline(self) -> float | None:
        return None


class DrivenNode:
    """One node. `said` is what left it; `commit_now` ends the commits that it asked for."""

    def __init__(self, journal: MemoryJournal | None = None, **sections: Any) -> None:
        self.config = Config(**{"topics": RULES, **sections})
        self.journal = journal or MemoryJournal()
        self.said: list[tuple[Peer, Any]] = []
        self.called: list[tuple[Any, ...]] = []
        self.now = 0.0
        self._decoders: dict[Peer, Decoder] = {}
        self._number = 0
        self.routes = Routes("n", 1)
        self.core = Core("n", "epoch", self.journal, self.config, self, Random(1), now_us=lambda: 0)
        self.anycast = NodeAnycast(
            config=self.config,
            node_name="n",
            core=self.core,
            routes=self.routes,
            url_of=lambda name: "",
            distributions=Distributions(self.config),
            make_publisher=cast(Any, lambda *args, **fields: None),
            run_soon=lambda: None,
            call_soon=self._call,
            clock=lambda: self.now,
            rng=Random(1),
        )
        self.neighbours = Neighbours()
        self.core.parts.add("links", self.neighbours)
        self.core.parts.add("anycast", self.anycast)
        self.core.parts.add("streams", self.anycast.streams)
        self.anycast.start()
        self.settle_down()

    # -- the shell

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        data = b"".join(bytes(one) for one in buffers)
        self.said += [(peer, item) for item in self._decoders.setdefault(peer, Decoder()).feed(data)]

    def commit(self, number: int, sync: bool) -> None:
        self._number = number

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        self.called.append(args)
        function(*args)

    # -- the test's side

    def run(self) -> None:
        self.core.run(self.now)

    def commit_now(self) -> None:
        """Everything that was staged by now becomes durable."""
        self.core.durable(self._number, self.journal.commit(), self.now)
        self.core.run(self.now)

    def settle_down(self) -> None:
        """Let it do everything, and make it durable."""
        self.run()
        while self.journal.staged_end > self.journal.end:
            self.commit_now()

    def give(self, item: Any, peer: Peer) -> None:
        """A message comes in from a peer, and is acted on."""
        if not isinstance(item, Frames) and self.anycast.subscriptions.take(item, peer, f"peer {peer}"):
            self.run()
            return
        self.core.receive(item, peer, self.now)
        self.run()

    def pass_on(self, message: Any, name: str) -> None:
        """Links pass on something about a neighbour, which is acted on."""
        self.core.parts.give(message, name, self.now)
        self.run()

    def subscribe(self, pattern: str = ORDERS, name: str = "", sub: int = 1) -> None:
        self.core.joined(SUBSCRIBER, self.now)
        self.give(Subscribe(sub, pattern, name, Start(), 1 << 20), SUBSCRIBER)
        self.settle_down()

    def publish(self, first: int = 1, count: int = 1, topic: str = ORDERS) -> Batch:
        batch = Batch.build(SOURCE, topic, first, [b"x"] * count, time_us=0)
        self.core.joined(PUBLISHER, self.now)
        self.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)
        return batch

    def heard(self, peer: Peer, kind: type[Any]) -> list[Any]:
        """The messages of a type that a peer got."""
        return [item for to, item in self.said if to == peer and isinstance(item, kind)]

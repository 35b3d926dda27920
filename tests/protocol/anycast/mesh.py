"""Nodes that consist of the machines only, with ordered links between them, and scripted subscribers.

It has no network and no delays: a test chooses the link whose next message arrives, to reach every order of messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from reknit.batch import Batch
from reknit.outcome import Outcome
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import (
    Attach,
    AttemptEnded,
    DeliverLocally,
    Detach,
    ForwardToNeighbour,
    Grant,
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourUp,
    OfferEvents,
    Resolve,
    RoutesChanged,
    SubscriberOutcomes,
)
from reknit.protocol.anycast.machine import AnycastLimits, AnycastMachine
from reknit.protocol.routing.routes import Interests, LinkDown, LinkUp, Rerouted, Routes, SendToNeighbour
from reknit.topic import Pattern
from reknit.wire.links import Return
from reknit.wire.messages import DispositionRow
from reknit.wire.outcomes import RangeOutcome

SOURCE = b"s" * 16
TOPIC = "orders"
ACC, REL, REJ, MOD, REC = (
    Outcome.ACCEPTED,
    Outcome.RELEASED,
    Outcome.REJECTED,
    Outcome.MODIFIED,
    Outcome.RECEIVED,
)
Answer = Callable[[int, int], list[Outcome]] | Outcome | list[Outcome] | None
"""A subscriber's answer to `[start, stop)`: one outcome, several in this order, or none."""


class Node:
    """One node: routes and anycast, as the real one has them."""

    def __init__(self, name: str, instance: int, is_edge: bool, link_events: int) -> None:
        self.routes = Routes(name, instance, is_edge=is_edge)
        self.anycast = AnycastMachine(name, self.routes, Random(1), AnycastLimits(link_events))


class Mesh:
    """All nodes, and the messages between them."""

    def __init__(self, *links: str, edges: str = "", link_events: int = 65_536) -> None:
        self.now = 0.0
        self.link_events = link_events
        self.nodes: dict[str, Node] = {}
        self.lines: dict[tuple[str, str], deque[object]] = {}
        self.answers: dict[str, Answer] = {}
        self.tries: list[tuple[str, int, int]] = []
        """(subscriber, start, stop), in order."""
        self.attempts: list[int] = []
        self.fates: list[RangeOutcome] = []
        self.trail: list[AttemptEnded] = []
        self.granted: dict[str, int] = {}
        self._next = 1
        self.journal: list[Batch] = []
        for name in sorted({name for link in links for name in link}):
            self.start(name, name in edges)
        for link in links:
            self.link(link[0], link[1])
        self.run()

    def start(self, name: str, is_edge: bool = False) -> None:
        self.nodes[name] = Node(name, len(self.nodes) + 1, is_edge, self.link_events)

    def link(self, one: str, two: str) -> None:
        self.lines[one, two], self.lines[two, one] = deque(), deque()
        for name, other in ((one, two), (two, one)):
            self.nodes[name].routes.receive(LinkUp(1), other, self.now)
            self.nodes[name].anycast.receive(NeighbourUp(), other, self.now)
            self._collect(name)

    def cut(self, one: str, two: str) -> None:
        """The connection is lost with everything on it."""
        for name, other in ((one, two), (two, one)):
            self.lines.pop((name, other), None)
            if name in self.nodes:
                node = self.nodes[name]
                node.routes.receive(LinkDown(), other, self.now)
                self._collect(name)
                node.anycast.receive(NeighbourDown(), other, self.now)
                self._collect(name)

    def kill(self, name: str) -> None:
        del self.nodes[name]
        for one, two in [line for line in self.lines if line[0] == name]:
            self.cut(two, one)

    def subscribe(self, name: str, answer: Answer, credit: int = 1 << 40, topic: str = TOPIC) -> None:
        """A subscriber; its name begins with its node's."""
        node = self.nodes[name[0]]
        self.answers[name], self.granted[name] = answer, credit
        node.routes.receive(Interests([(topic, "any")]), name[0], self.now)
        node.anycast.receive(Attach(Pattern(topic), "events", credit, name), name, self.now)
        self._collect(name[0])

    def leave(self, name: str, is_clean: bool) -> None:
        node = self.nodes[name[0]]
        node.routes.receive(Interests([], [(TOPIC, "any")]), name[0], self.now)
        node.anycast.receive(Detach(is_clean), name, self.now)
        self._collect(name[0])

    def credit(self, name: str, events: int) -> None:
        self.granted[name] += events
        self.nodes[name[0]].anycast.receive(Grant(self.granted[name]), name, self.now)
        self._collect(name[0])

    def say(self, name: str, outcome: Outcome, start: int, stop: int) -> None:
        row = DispositionRow(TOPIC, SOURCE, start, stop, outcome)
        self.nodes[name[0]].anycast.receive(SubscriberOutcomes([row]), name, self.now)
        self._collect(name[0])

    def offer(
        self,
        name: str,
        count: int = 1,
        mode: str = "closest",
        resend: bool = True,
        keeps: bool = False,
        attempts_max: int = 0,
    ) -> None:
        batch = Batch.build(SOURCE, TOPIC, self._next, [b"x"] * count, time_us=0)
        self._next = batch.stop
        self.journal.append(batch)
        offered = OfferEvents(batch, mode, resend, keeps=keeps, attempts_max=attempts_max)
        self.nodes[name].anycast.receive(offered, HERE, self.now)
        self._collect(name)

    def send(self, name: str, count: int = 1, mode: str = "closest", resend: bool = True) -> str:
        """Offer events, run until nothing is under way, and return the outcome of all events."""
        self.fates.clear()
        self.offer(name, count, mode, resend)
        self.run()
        assert sum(fate.stop - fate.start for fate in self.fates) == count, (
            "every event has exactly one outcome"
        )
        [outcome] = {fate.outcome for fate in self.fates}
        return Outcome(outcome).name

    def run(self) -> None:
        """Run until nothing is under way."""
        while any(self.lines.values()):
            for (sender, receiver), line in list(self.lines.items()):
                if line:
                    self.deliver_next(sender, receiver)

    def deliver_next(self, sender: str, receiver: str) -> None:
        """The next message on a link arrives."""
        self._arrive(self.lines[sender, receiver].popleft(), sender, receiver)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for name, node in self.nodes.items():
            node.anycast.tick(self.now)
            self._collect(name)
        self.run()

    @property
    def tried(self) -> list[str]:
        return [name for name, _, _ in self.tries]

    def records(self) -> int:
        return sum(node.anycast.records() for node in self.nodes.values())

    def _arrive(self, message: object, sender: str, receiver: str) -> None:
        node = self.nodes[receiver]
        match message:
            case SendToNeighbour(message=news):
                node.routes.receive(news, sender, self.now)  # type: ignore[arg-type]
            case Return():
                node.anycast.receive(NeighbourOutcomes([message]), sender, self.now)
            case OfferEvents():
                node.anycast.receive(message, sender, self.now)
        self._collect(receiver)

    def _collect(self, name: str) -> None:
        node = self.nodes[name]
        for news in node.routes.take_effects():
            match news:
                case SendToNeighbour(peer=peer) if (name, str(peer)) in self.lines:
                    self.lines[name, str(peer)].append(news)
                case Rerouted():
                    node.anycast.receive(RoutesChanged(), name, self.now)
                case _:
                    pass
        for effect in node.anycast.take_effects():
            self._perform(effect, name)

    def _perform(
        self, effect: DeliverLocally | ForwardToNeighbour | Resolve | AttemptEnded, name: str
    ) -> None:
        match effect:
            case DeliverLocally(key=key, start=start, stop=stop, attempt=attempt):
                self.attempts.append(attempt)
                self.tries.append((str(key), start, stop))
                self._answer(str(key), start, stop)
            case ForwardToNeighbour():
                stored = (one for one in self.journal if one.first <= effect.start < one.stop)
                batch = (effect.batch or next(stored)).cut(effect.start, effect.stop)
                offered = OfferEvents(
                    batch,
                    effect.mode,
                    effect.resend,
                    effect.origin,
                    tuple(effect.visited),
                    attempts=effect.attempts,
                )
                self.lines[name, str(effect.key)].append(offered)
            case Resolve(up=up) if up == HERE:
                self.fates.append(effect.fate)
            case Resolve(up=up) if (name, str(up)) in self.lines:
                row = Return(effect.topic, effect.source, effect.fate, effect.visited)
                self.lines[name, str(up)].append(row)
            case AttemptEnded():
                self.trail.append(effect)

    def _answer(self, name: str, start: int, stop: int) -> None:
        answer = self.answers[name]
        outcomes = answer(start, stop) if callable(answer) else answer
        for outcome in outcomes if isinstance(outcomes, list) else [outcomes]:
            if outcome is not None:
                self.say(name, outcome, start, stop)

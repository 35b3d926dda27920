"""The machine of anycast: what it is told, and what becomes of each delivery by that.

A delivery on one node, as specifications call it:

    NEW -select-> FORWARDED(path)                 no path -> RELEASED upstream
    FORWARDED:
      RECEIVED                    -> PINNED: no further path is tried
      ACCEPTED, REJECTED, MODIFIED -> upstream, done
      RELEASED, to be resent      -> this path is excluded for this delivery -> select again
      RELEASED otherwise          -> upstream
      path lost, not yet sent     -> select again
      path lost, sent, unsettled  -> MODIFIED: in doubt. Never RELEASED, which promises that it was not processed

Nothing is sent that a path has no room for: it waits here, for whichever path has room first. The search is depth
first. A delivery carries the nodes that have it or have had it, so each is tried at most once, and no loop can form
even while nodes do not agree on the routes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final, assert_never

import msgspec

from reknit.batch import SEQ_MAX
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.deliveries import Deliveries
from reknit.protocol.anycast.forwarding import Forwarding
from reknit.protocol.anycast.inputs import (
    Attach,
    Detach,
    Effect,
    Grant,
    Input,
    NeighbourDown,
    NeighbourUp,
    NewRoutes,
    Offered,
    Returns,
    Rows,
    Stall,
    Withdraw,
)
from reknit.protocol.anycast.paths import Paths
from reknit.protocol.anycast.state import GONE, Delivery, Path
from reknit.protocol.dispatch.retry import Retry
from reknit.protocol.machine import Peer
from reknit.protocol.routing.routes import Routes
from reknit.topic import Pattern
from reknit.wire.links import Return
from reknit.wire.messages import Row
from reknit.wire.outcomes import Fate

IN_DOUBT: Final = "the path was lost with it on the way: whether it was processed is not known"


@dataclass(slots=True)
class Limits:
    """How much a neighbour has at a time, and how soon this node tries again what everybody released."""

    link_events: int = 65_536
    link_bytes: int = 16 << 20
    retry: Retry | None = None


class Anycast:
    """All deliveries of one node.

    >>> from reknit.batch import Batch
    >>> anycast = Anycast("a", Routes("a", 1), Random(1))
    >>> anycast.receive(Attach(Pattern("orders"), "events", 10, "first"), "one", 0.0)
    >>> batch = Batch.build(b"s" * 16, "orders", 1, [b"x"], time_us=0)
    >>> anycast.receive(Offered(batch, "balanced", resend=True), "here", 0.0)
    >>> [hand] = anycast.take_effects()
    >>> anycast.receive(Rows([Row("orders", b"s" * 16, 1, 2, Outcome.ACCEPTED)]), hand.key, 0.1)
    >>> Outcome(anycast.take_effects()[-1].fate.outcome).name
    'ACCEPTED'
    """

    def __init__(self, name: str, routes: Routes, rng: Random, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.name = name
        self._paths = Paths(routes, limits.link_events, limits.link_bytes)
        self._deliveries = Deliveries(name, limits.retry or Retry(), rng)
        self._forwarding = Forwarding(self._paths, self._deliveries)

    # -- questions

    @property
    def has_effects(self) -> bool:
        """Whether there is something to be done."""
        return bool(self._deliveries.effects)

    @property
    def held_bytes(self) -> int:
        """Of events that were published here: in memory, because they wait or are on their way."""
        return self._deliveries.held_bytes

    @property
    def parked(self) -> int:
        """How many deliveries wait for another try."""
        return self._deliveries.parked.count

    def has_path(self, topic: str, is_stream: bool = False) -> bool:
        """Whether anyone is there who may take an event (or a stream), with or without room for it."""
        return self._paths.has_path(topic, is_stream)

    def paths(self) -> list[Path]:
        """All that are alive."""
        return self._paths.all()

    def unsettled(self, key: Peer) -> int:
        """How many events a path has and has not settled."""
        path = self._paths.of(key)
        return path.unsettled if path else 0

    def waiting(self, topic_of: Pattern | None = None) -> int:
        """How many events wait for room."""
        return sum(
            delivery.count
            for delivery in self._forwarding.waiting
            if topic_of is None or topic_of.matches(delivery.topic)
        )

    def records(self) -> int:
        """How many deliveries are remembered here, in any state: 0 when all is settled."""
        sent = sum(1 for path in self.paths() for _ in path)
        waiting = sum(1 for _ in self._forwarding.waiting)
        backlog = sum(len(path.backlog) for path in self.paths())
        return sent + waiting + backlog + self.parked

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a publisher or subscriber of this node, from a neighbour (its name), or about the links."""
        match message:
            case Offered():
                self._forwarding.forward(self._deliveries.begin(message, peer), now)
            case Rows(rows=rows):
                self._settle(peer, rows, now)
            case Returns(rows=returns):
                self._returned(str(peer), returns, now)
            case Grant(total=total):
                self._grant(peer, total, now)
            case Attach():
                self._paths.attach(message, peer)
                self._forwarding.look_again(now)
            case Detach(is_clean=is_clean):
                self._detach(peer, is_clean, now)
            case Stall(is_blocked=is_blocked):
                self._stall(peer, is_blocked, now)
            case NeighbourUp():
                self._paths.link(str(peer))
                self._forwarding.look_again(now)
            case NeighbourDown():
                self._neighbour_down(str(peer), now)
            case NewRoutes():
                self._forwarding.look_again(now)
            case Withdraw():
                self._withdraw(message, now)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Try again what is due, and end what is too old."""
        for delivery in self._deliveries.deadlines.due(now):
            self._deliveries.expire(delivery)
        for delivery in self._deliveries.parked.due(now):
            self._forwarding.unpark(delivery, now)

    def next_deadline(self) -> float | None:
        """The next try, or the next end."""
        parked, deadlines = self._deliveries.parked, self._deliveries.deadlines
        if not parked.heap and not deadlines.heap:
            return None
        due = (parked.next_deadline(), deadlines.next_deadline())
        return min((at for at in due if at is not None), default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._deliveries.effects = self._deliveries.effects, []
        return effects

    # -- paths

    def _grant(self, key: Peer, total: int, now: float) -> None:
        path = self._paths.subscribers.get(key)
        if path is not None and total != path.granted:
            path.granted = total
            self._forwarding.pump(path, now)

    def _stall(self, peer: Peer, is_blocked: bool, now: float) -> None:
        path = self._paths.of(peer)
        if path is not None:
            path.is_blocked = is_blocked
            self._forwarding.pump(path, now)

    def _detach(self, key: Peer, is_clean: bool, now: float) -> None:
        path = self._paths.detach(key)
        if path is not None:
            self._lose(path, is_clean, now)

    def _neighbour_down(self, name: str, now: float) -> None:
        path = self._paths.unlink(name)
        if path is not None:
            self._forget_upstream(name)
            self._lose(path, False, now)

    def _forget_upstream(self, name: str) -> None:
        """What came from there is in doubt there by now: what was not sent on is not sent on any more."""
        for delivery in self._forwarding.waiting:
            if delivery.up == name:
                self._deliveries.end(delivery)
        for path in self.paths():
            for delivery in path:
                origin = delivery.join.parent if delivery.join is not None else delivery
                if origin.up == name:
                    origin.up = GONE
                    delivery.resend = False

    def _lose(self, path: Path, is_clean: bool, now: float) -> None:
        """What is with it was released, or is in doubt; what was not sent goes another way."""
        taken = path.take_all()
        for delivery in taken:
            if is_clean:
                self._released(delivery, path, Fate(delivery.start, delivery.stop, Outcome.RELEASED), (), now)
            else:
                self._deliveries.tried(delivery, path, Outcome.MODIFIED, IN_DOUBT)
                self._deliveries.finish(
                    delivery, Outcome.MODIFIED, Code.UNKNOWN, IN_DOUBT, now, path=path.name
                )
        backlog, path.backlog = path.backlog, deque()
        for delivery in backlog:
            self._deliveries.finish(
                delivery, Outcome.RELEASED, Code.UNAVAILABLE, "it left before it was sent", now
            )
        self._forwarding.look_again(now)

    # -- outcomes

    def _settle(self, key: Peer, rows: list[Row], now: float) -> None:
        path = self._paths.subscribers.get(key)
        if path is None:
            return
        for row in rows:
            for delivery in path.take((row.topic, row.source), row.start, row.stop):
                outcome = Outcome.MODIFIED if row.outcome == Outcome.FAILED else row.outcome
                fate = Fate(delivery.start, delivery.stop, outcome, row.code, row.text)
                self._outcome(delivery, path, fate, (), now)
        self._forwarding.pump(path, now)

    def _returned(self, name: str, rows: list[Return], now: float) -> None:
        path = self._paths.neighbours.get(name)
        if path is None:
            return
        for row in rows:
            for delivery in path.take((row.topic, row.source), row.fate.start, row.fate.stop):
                fate = msgspec.structs.replace(row.fate, start=delivery.start, stop=delivery.stop)
                self._outcome(delivery, path, fate, row.visited, now)
        self._forwarding.pump(path, now)

    def _outcome(
        self, delivery: Delivery, path: Path, fate: Fate, visited: list[str] | tuple[str, ...], now: float
    ) -> None:
        match fate.outcome:
            case Outcome.RECEIVED:
                delivery.is_pinned, delivery.resend = True, False
                path.put_back(delivery)
                if delivery.join is None:
                    self._deliveries.tell(delivery, fate, path)
            case Outcome.RELEASED:
                self._released(delivery, path, fate, visited, now)
            case Outcome.ACCEPTED | Outcome.REJECTED | Outcome.MODIFIED:
                self._deliveries.tried(delivery, path, Outcome(fate.outcome), fate.text)
                if path.is_neighbour:
                    delivery.tries += fate.attempts
                where = (fate.node or self.name, fate.path or path.name)
                self._deliveries.finish(delivery, Outcome(fate.outcome), fate.code, fate.text, now, *where)
            case _:
                path.put_back(delivery)  # no outcome that we know: it is still unsettled

    def _released(
        self, delivery: Delivery, path: Path, fate: Fate, visited: list[str] | tuple[str, ...], now: float
    ) -> None:
        self._deliveries.tried(delivery, path, Outcome.RELEASED, fate.text)
        if path.is_neighbour:
            delivery.tries += fate.attempts
            delivery.visited = delivery.visited.union(visited, (path.name,))
        else:
            delivery.excluded |= {path.id}
        delivery.path = None
        if delivery.deadline is not None and now >= delivery.deadline:
            self._deliveries.expire(delivery)
        elif delivery.resend and delivery.join is None:
            self._forwarding.forward(delivery, now)
        else:
            where = (fate.node or self.name, fate.path or path.name)
            self._deliveries.finish(delivery, Outcome.RELEASED, fate.code, fate.text, now, *where)

    def _withdraw(self, message: Withdraw, now: float) -> None:
        """It is nobody's any more, wherever it is."""
        for path in self.paths():
            for delivery in path.take((message.topic, message.source), 1, SEQ_MAX):
                self._deliveries.tried(delivery, path, Outcome.MODIFIED, message.text)
                self._deliveries.end(delivery)
                self._forwarding.pump(path, now)
        for delivery in self._forwarding.waiting.streams.get(message.topic, ()):
            if delivery.source == message.source:
                self._deliveries.end(delivery)

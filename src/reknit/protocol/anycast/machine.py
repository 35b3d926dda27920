"""The machine of anycast.

Inputs, and what each does (the states of a delivery are in `delivery.py`):

    OfferEvents        a new delivery: along a path -> SENT; all paths full -> WAITING; no path -> RELEASED upstream;
                       a path has it from a neighbour that is gone -> it is not sent again (see `orphans.py`)
    SubscriberOutcomes, NeighbourOutcomes, for each delivery that is SENT or PINNED:
      RECEIVED                       -> PINNED: no further path is tried; upstream is told
      ACCEPTED, REJECTED, MODIFIED   -> upstream, ENDED
      RELEASED, to be resent         -> this path is excluded for this delivery, and the next one is tried
      RELEASED otherwise             -> upstream, ENDED
    Detach, NeighbourDown: the path is lost
      a delivery that was not sent   -> the next path is tried
      SENT or PINNED, unsettled      -> MODIFIED: in doubt. Never RELEASED, which promises that it was not processed;
                                        only a clean Detach says so
    Attach, NeighbourUp, RoutesChanged, Grant, Stall   -> deliveries that wait for a path or for room are tried again
    WithdrawStream     the stream is ENDED wherever it is

A delivery that this node keeps (nobody waits for its outcome) is PARKED instead of RELEASED or MODIFIED upstream.
Outcomes, grants and stalls of a path that is gone are ignored: its deliveries got their outcome when it was lost.
An outcome with an unknown number leaves its delivery unsettled.

A delivery that no path has room for waits here, for the first path that has room. The search is depth
first. A delivery carries the nodes that have it or have had it, so each is tried at most once, and no loop can form
even while nodes do not agree on the routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import assert_never

import msgspec

from reknit.backoff import Backoff
from reknit.batch import SEQ_MAX
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.deliveries import Deliveries, LocalReason
from reknit.protocol.anycast.delivery import AnycastDelivery
from reknit.protocol.anycast.forwarding import Forwarding
from reknit.protocol.anycast.inputs import (
    Attach,
    Detach,
    Effect,
    Grant,
    Input,
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourUp,
    OfferEvents,
    RoutesChanged,
    Stall,
    SubscriberOutcomes,
    WithdrawStream,
)
from reknit.protocol.anycast.orphans import Orphans
from reknit.protocol.anycast.path import Path
from reknit.protocol.anycast.paths import Paths, RouteTable
from reknit.protocol.machine import Machine, Peer, earliest
from reknit.topic import Pattern
from reknit.wire.links import Return
from reknit.wire.messages import DispositionRow
from reknit.wire.outcomes import RangeOutcome


class AnycastLimits(msgspec.Struct, frozen=True):
    """How much a neighbour has unsettled at a time, and the back-off after everybody released an event."""

    link_events: int = 65_536
    link_bytes: int = 16 << 20
    backoff: Backoff = Backoff(0.1, 30.0)


class AnycastMachine:
    """All deliveries of one node.

    >>> from reknit.batch import Batch
    >>> from reknit.protocol.anycast.delivery import HERE
    >>> from reknit.protocol.routing.routes import Routes
    >>> anycast = AnycastMachine("a", Routes("a", 1), Random(1))
    >>> anycast.receive(Attach(Pattern("orders"), "events", 10, "first"), "one", 0.0)
    >>> batch = Batch.build(b"s" * 16, "orders", 1, [b"x"], time_us=0)
    >>> anycast.receive(OfferEvents(batch, "balanced", resend=True), HERE, 0.0)
    >>> [hand] = anycast.take_effects()
    >>> anycast.receive(SubscriberOutcomes([DispositionRow("orders", b"s" * 16, 1, 2, Outcome.ACCEPTED)]), hand.key, 0.1)
    >>> Outcome(anycast.take_effects()[-1].fate.outcome).name
    'ACCEPTED'
    """

    def __init__(
        self, name: str, routes: RouteTable, rng: Random, limits: AnycastLimits | None = None
    ) -> None:
        limits = limits or AnycastLimits()
        self.name = name
        self._paths = Paths(routes, limits.link_events, limits.link_bytes)
        self._deliveries = Deliveries(name, limits.backoff, rng)
        self.effects = self._deliveries.effects
        """What `take_effects` returns next."""
        self._forwarding = Forwarding(self._paths, self._deliveries)
        self._orphans = Orphans(self._paths, self._deliveries)
        self.released = 0
        """How many events came back as RELEASED since the node started."""

    # -- questions

    @property
    def held_bytes(self) -> int:
        """Of events that were published here and are in memory: waiting, or sent and not settled."""
        return self._deliveries.held_bytes

    @property
    def parked(self) -> int:
        """How many deliveries wait for another attempt."""
        return self._deliveries.parked.count

    @property
    def forwarded_again(self) -> int:
        """How many events were sent along a further path since the node started."""
        return self._forwarding.repeated

    def has_path(self, topic: str, is_stream: bool = False) -> bool:
        """Whether some path may take an event (or a stream), with or without room for it."""
        return self._paths.has_path(topic, is_stream)

    def paths(self) -> list[Path]:
        """The paths to all subscribers and neighbours."""
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
        """How many deliveries this node holds, in any state: 0 when all are settled."""
        sent = sum(1 for path in self.paths() for _ in path)
        waiting = sum(1 for _ in self._forwarding.waiting)
        backlog = sum(path.backlog for path in self.paths())
        return sent + waiting + backlog + self.parked

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input from a publisher or subscriber of this node, from a neighbour (by name), or about the links."""
        match message:
            case OfferEvents():
                for delivery in self._orphans.adopt(self._deliveries.begin(message, peer)):
                    self._forwarding.forward(delivery, now)
            case SubscriberOutcomes(rows=rows):
                self._settle(peer, rows, now)
            case NeighbourOutcomes(rows=returns):
                self._settle_neighbour(str(peer), returns, now)
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
            case RoutesChanged():
                self._forwarding.look_again(now)
            case WithdrawStream():
                self._withdraw(message, now)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Expire deliveries, and try parked ones again."""
        for delivery in self._deliveries.deadlines.due(now):
            self._deliveries.expire(delivery)
        for delivery in self._deliveries.parked.due(now):
            self._forwarding.unpark(delivery, now)
        self._forwarding.tick(now)

    def next_deadline(self) -> float | None:
        """When the next delivery expires or is tried again, or a path that settles nothing gets more."""
        deliveries = self._deliveries
        return earliest(
            (
                deliveries.parked.next_deadline(),
                deliveries.deadlines.next_deadline(),
                self._forwarding.next_deadline(),
            )
        )

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        return self._deliveries.take_effects()

    # -- paths

    def _grant(self, key: Peer, total: int, now: float) -> None:
        path = self._paths.subscriber(key)
        if path is not None and path.credit.grant(total):
            self._forwarding.pump(path, now)

    def _stall(self, peer: Peer, is_blocked: bool, now: float) -> None:
        path = self._paths.of(peer)
        if path is not None:
            path.credit.block(is_blocked)
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
        """The deliveries of a lost neighbour are in doubt: those that were not sent yet are dropped."""
        for delivery in self._forwarding.waiting:
            if delivery.upstream == name:
                self._deliveries.end(delivery)
        for path in self.paths():
            for delivery in path:
                if delivery.comes_from(name):
                    delivery.disown()
                    self._orphans.add(delivery)

    def _lose(self, path: Path, is_clean: bool, now: float) -> None:
        """Its unsettled deliveries are released or in doubt. Deliveries that were not sent take another path."""
        for delivery in path.take_all():
            if is_clean:
                self._released(
                    delivery, path, RangeOutcome(delivery.start, delivery.stop, Outcome.RELEASED), (), now
                )
            else:
                text = LocalReason.IN_DOUBT.value
                self._deliveries.attempt_ended(delivery, path, Outcome.MODIFIED, text)
                self._deliveries.finish(delivery, Outcome.MODIFIED, Code.UNKNOWN, text, now, path=path.name)
        for copy in path.take_backlog():
            text = LocalReason.NEVER_SENT.value
            self._deliveries.finish(copy, Outcome.RELEASED, Code.UNAVAILABLE, text, now)
        self._forwarding.look_again(now)

    # -- outcomes

    def _settle(self, key: Peer, rows: list[DispositionRow], now: float) -> None:
        path = self._paths.subscriber(key)
        if path is None:
            return
        unsettled = path.unsettled
        for row in rows:
            for delivery in path.take((row.topic, row.source), row.start, row.stop):
                outcome = Outcome.MODIFIED if row.outcome == Outcome.FAILED else row.outcome
                fate = RangeOutcome(delivery.start, delivery.stop, outcome, row.code, row.text)
                self._settle_one(delivery, path, fate, (), now)
        path.settled(unsettled - path.unsettled, now)
        self._forwarding.pump(path, now)

    def _settle_neighbour(self, name: str, rows: list[Return], now: float) -> None:
        path = self._paths.neighbour(name)
        if path is None:
            return
        unsettled = path.unsettled
        for row in rows:
            for delivery in path.take((row.topic, row.source), row.fate.start, row.fate.stop):
                fate = msgspec.structs.replace(row.fate, start=delivery.start, stop=delivery.stop)
                self._settle_one(delivery, path, fate, row.visited, now)
        path.settled(unsettled - path.unsettled, now)
        self._forwarding.pump(path, now)

    def _settle_one(
        self, delivery: AnycastDelivery, path: Path, fate: RangeOutcome, visited: Sequence[str], now: float
    ) -> None:
        match fate.outcome:
            case Outcome.RECEIVED:
                delivery.pin()
                path.put_back(delivery)
                self._deliveries.received(delivery, fate, path)
            case Outcome.RELEASED:
                self._released(delivery, path, fate, visited, now)
            case Outcome.ACCEPTED | Outcome.REJECTED | Outcome.MODIFIED:
                self._deliveries.attempt_ended(delivery, path, Outcome(fate.outcome), fate.text)
                if path.is_neighbour:
                    delivery.count_attempts(fate.attempts)
                self._finish(delivery, path, fate, now)
            case _:
                path.put_back(delivery)  # an unknown outcome settles nothing

    def _finish(self, delivery: AnycastDelivery, path: Path, fate: RangeOutcome, now: float) -> None:
        self._deliveries.finish(
            delivery,
            Outcome(fate.outcome),
            fate.code,
            fate.text,
            now,
            node=fate.node or self.name,
            path=fate.path or path.name,
        )

    def _released(
        self, delivery: AnycastDelivery, path: Path, fate: RangeOutcome, visited: Sequence[str], now: float
    ) -> None:
        self.released += delivery.count
        self._deliveries.attempt_ended(delivery, path, Outcome.RELEASED, fate.text)
        if path.is_neighbour:
            delivery.count_attempts(fate.attempts)
            delivery.release_behind((*visited, path.name))
        else:
            delivery.release(path.id)
        deadline = delivery.terms.deadline
        if deadline is not None and now >= deadline:
            self._deliveries.expire(delivery)
        elif delivery.resend and delivery.join is None:
            self._forwarding.forward(delivery, now)
        else:
            self._finish(delivery, path, fate, now)

    def _withdraw(self, message: WithdrawStream, now: float) -> None:
        """End a stream wherever it is."""
        for path in self.paths():
            for delivery in path.take((message.topic, message.source), 1, SEQ_MAX):
                self._deliveries.attempt_ended(delivery, path, Outcome.MODIFIED, message.text)
                self._deliveries.end(delivery)
                self._forwarding.pump(path, now)
        for delivery in self._forwarding.waiting_streams(message.topic):
            if delivery.source == message.source:
                self._deliveries.end(delivery)


_: type[Machine[Input, Effect]] = AnycastMachine

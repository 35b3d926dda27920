"""A node's anycast: reads events of topics with a distribution from the journal, delivers each along the best path, and
tells its publisher the outcome.

The machine decides (`reknit.protocol.anycast.machine`). This module connects it to the journal, connections, gateways
and the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from reknit import environment
from reknit.backoff import Backoff
from reknit.batch import Batch
from reknit.config import Config
from reknit.event import FLAG_STREAM
from reknit.ledger import Held, Series
from reknit.node.anycast.attempts import NodeAttempts
from reknit.node.anycast.commitments import Commitments
from reknit.node.anycast.distributions import Distributions
from reknit.node.anycast.gateway_api import OnDelivered, OnPath, OnResults, StreamTaker
from reknit.node.anycast.gateway_ends import CallSoon, GatewayReceiver, GatewaySender
from reknit.node.anycast.journal_offers import JournalOffers
from reknit.node.anycast.ledger import AnycastLedger
from reknit.node.anycast.ledger_writer import LedgerWriter
from reknit.node.anycast.local_paths import LocalPaths
from reknit.node.anycast.outcome_notifier import OutcomeNotifier
from reknit.node.anycast.senders import GatewaySenders
from reknit.node.anycast.shared_subscriptions import SharedSubscriptions
from reknit.node.core.core import Core
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.streams.streams import DISTRIBUTIONS, Here, NodeStreams
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import (
    Attach,
    AttemptEnded,
    DeliverLocally,
    ForwardBatch,
    ForwardToNeighbour,
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourRecorded,
    NeighbourUp,
    Resolve,
    ReturnOutcome,
    RoutesChanged,
    SubscriberOutcomes,
)
from reknit.protocol.anycast.machine import AnycastLimits, AnycastMachine
from reknit.protocol.dispatch.inputs import PeerBlocked
from reknit.protocol.machine import MadeDurable, NextTurn, Peer, PeerLeft, earliest
from reknit.protocol.routing.routes import Routes
from reknit.protocol.streams.inputs import PathAssigned, PathReleased, UpstreamGone
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.codec import encode
from reknit.wire.links import Return
from reknit.wire.messages import Deliver, DispositionRow
from reknit.wire.outcomes import RangeOutcome, Want


class NodeAnycast:
    """All anycast of one node; `node.anycast`."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        core: Core,
        routes: Routes,
        url_of: Callable[[str], str],
        distributions: Distributions,
        make_publisher: MakePublisher,
        run_soon: Callable[[], None],
        call_soon: CallSoon,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._name = node_name
        self._core = core
        self._parts = core.parts
        self._call_soon = call_soon
        self.machine = AnycastMachine(node_name, routes, rng, _limits(config))
        self.distributions = distributions
        self.ledger = AnycastLedger(core, self.distributions.patterns)
        self.notifier = OutcomeNotifier(
            config=config,
            node_name=node_name,
            journal=core.journal,
            machine=self.machine,
            distributions=self.distributions,
            ledger=self.ledger,
            say=core.say,
        )
        self.paths = LocalPaths(
            self.machine, parts=core.parts, notifier=self.notifier, run_soon=run_soon, clock=clock
        )
        self.streams = NodeStreams(
            config=config,
            node_name=node_name,
            core=core,
            distribution=self.distributions.of,
            clock=clock,
        )
        self.subscriptions = SharedSubscriptions(
            config=config,
            journal=core.journal,
            distributions=self.distributions,
            paths=self.paths,
            streams=self.streams,
            say=core.say,
            quotas=core.quotas,
        )
        self.offers = JournalOffers(
            settings=config.anycast,
            journal=core.journal,
            tail=core.tail,
            distributions=self.distributions,
            ledger=self.ledger,
            notifier=self.notifier,
            paths=self.paths,
            now_us=core.now_us,
        )
        self.writer = LedgerWriter(self.ledger, self.offers)
        self.commitments = Commitments(
            writer=self.writer,
            notifier=self.notifier,
            subscriptions=self.subscriptions,
            parts=core.parts,
        )
        self._attempts = NodeAttempts(
            self.machine,
            attempts_max=config.anycast.trail_attempts_max,
            node_name=node_name,
            routes=routes,
            url_of=url_of,
        )
        self._senders = GatewaySenders(
            node_name=node_name,
            unsettled_max=config.anycast.sender_unsettled_max,
            distributions=self.distributions,
            notifier=self.notifier,
            make_publisher=make_publisher,
            notify_soon=self.paths.soon,
            call_soon=call_soon,
        )

    def start(self) -> None:
        """Open the accounts, and resume the events that were in flight when the node stopped."""
        if self.distributions.is_on:
            now = self.paths.now()
            position = self.ledger.open(now)
            self.writer.start(now)
            self.offers.resume(position)

    async def stop(self) -> None:
        """Write the outcomes that are not written yet."""
        self.writer.write(self.paths.now())
        self.streams.close()
        await self._senders.close()

    # -- distributions

    def distribution(self, pattern: str) -> str:
        """How the topics that match are distributed; see `reknit.node.anycast.gateway_api`."""
        return self.distributions.of_all(Pattern(pattern))

    def mode(self, topic: str) -> str:
        """How a topic is distributed."""
        return self.distributions.of(topic)

    def takes_streams(self, topic: str) -> bool:
        """Whether an event of the topic may be sent in chunks, and there is a subscriber that takes chunks."""
        return self.mode(topic) in DISTRIBUTIONS and self.machine.has_path(topic, is_stream=True)

    def want(self, want: Want, peer: Peer) -> None:
        """A publisher wants the outcomes of its events: those that are known already come from the ledger."""
        self.writer.write(self.paths.now())
        self.commitments.forget(want.source)
        self.notifier.want(want, peer)

    # -- gateways

    def sender(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None = None,
        resend_released: bool = False,
        source: bytes | None = None,
    ) -> GatewaySender:
        """Offers events on a topic; see `reknit.node.anycast.gateway_api`."""
        return self._senders.make(topic, on_results, on_path, resend_released, source)

    def receiver(
        self, pattern: str, on_delivered: OnDelivered, name: str = "", streams: StreamTaker | None = None
    ) -> GatewayReceiver:
        """Takes events; see `reknit.node.anycast.gateway_api`."""
        receiver = GatewayReceiver(
            Pattern(pattern),
            on_delivered,
            streams,
            paths=self.paths,
            node_streams=self.streams,
            deliver_now=self.perform,
            call_soon=self._call_soon,
        )
        name = name or f"gateway {environment.token_hex(8)}"
        self.paths.attach(receiver, Attach(receiver.pattern, "events", 0, name, streams is not None))
        self.paths.soon()
        return receiver

    def soon(self) -> None:
        """Perform the machine's effects in the next turn of the event loop."""
        self.paths.soon()

    # -- a part of the core

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """From another part, the journal or a connection."""
        match message:
            case MadeDurable(number=number):
                self.writer.made_durable(number)
                self.offers.offer()
            case PeerLeft():
                self.subscriptions.left(peer)
                self.commitments.left(peer)
                self.notifier.left(peer)
                if self.streams.topics:
                    self._parts.give(UpstreamGone(is_final=False), peer, now)
            case PeerBlocked(is_blocked=is_blocked):
                self.subscriptions.blocked(peer, is_blocked)
            case NextTurn():
                pass
            case RoutesChanged():
                self.machine.receive(message, peer, now)
                self.notifier.paths_changed()
            case NeighbourRecorded():
                self.commitments.receive(message, str(peer))
            case NeighbourUp() | NeighbourDown() | NeighbourOutcomes():
                self.commitments.receive(message, str(peer))
                self.machine.receive(message, peer, now)
            case _:
                self.machine.receive(message, peer, now)

    def tick(self, now: float) -> None:
        """Expire events, try parked ones again, and write the ledger."""
        self.machine.tick(now)
        self.writer.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return earliest((self.machine.next_deadline(), self.writer.next_deadline()))

    def perform(self, now: float) -> None:
        """Perform the machine's effects, write the outcomes, and tell those that are durable."""
        while effects := self.machine.take_effects():
            for effect in effects:
                match effect:
                    case DeliverLocally():
                        self._deliver(effect, now)
                    case ForwardToNeighbour():
                        self._forward(effect, now)
                    case Resolve():
                        self._resolve(effect, now)
                    case AttemptEnded():
                        self._tried(effect, now)
            self.offers.offer()
        if self.notifier.is_due:
            self.notifier.tell_paths()
        if self.writer.is_due:
            self.writer.write(now)
        self.commitments.perform(now)

    @property
    def is_due(self) -> bool:
        """Whether `perform` has something to do."""
        return (
            bool(self.machine.effects)
            or self.notifier.is_due
            or (self.ledger.is_due and self.writer.is_due)
            or self.commitments.is_due
        )

    def _load(self, effect: DeliverLocally | ForwardToNeighbour) -> Batch | None:
        """The events, cut to the range; None if retention has removed them."""
        if effect.batch is not None:
            if effect.batch.head.flags & FLAG_STREAM and effect.source not in self.streams.topics:
                return None  # it was given up in this turn
            return effect.batch.cut(effect.start, effect.stop)
        found = self._core.find(effect.topic, effect.source, effect.start, effect.stop)
        if len(found) == 1 and found[0].count == effect.stop - effect.start:
            return found[0]
        return None

    def _deliver(self, effect: DeliverLocally, now: float) -> None:
        batch = self._load(effect)
        if batch is None:
            self._vanish(effect, now)
        elif isinstance(effect.key, GatewayReceiver):
            effect.key.deliver(batch, effect.attempt)
        else:
            assert isinstance(effect.key, tuple)
            peer_id, sub = effect.key
            header = Deliver(sub, batch.head.length, -1, effect.attempt)
            self._core.send(peer_id, [encode(header), batch.data])
        if batch is not None and batch.head.flags & FLAG_STREAM:
            self._parts.give(PathAssigned(batch.source), effect.key, now)

    def _vanish(self, effect: DeliverLocally | ForwardToNeighbour, now: float) -> None:
        text = "retention removed it before it was delivered"
        fate = RangeOutcome(effect.start, effect.stop, Outcome.REJECTED, Code.DATA_LOSS, text, self._name)
        if isinstance(effect, ForwardToNeighbour):
            # as if the neighbour had said so
            returned = NeighbourOutcomes([Return(effect.topic, effect.source, fate, [])])
            self.machine.receive(returned, effect.key, now)
        else:
            row = DispositionRow(
                effect.topic, effect.source, effect.start, effect.stop, fate.outcome, fate.code, text
            )
            self.machine.receive(SubscriberOutcomes([row]), effect.key, now)

    def _forward(self, effect: ForwardToNeighbour, now: float) -> None:
        batch = self._load(effect)
        if batch is None:
            self._vanish(effect, now)
        else:
            self._parts.give(ForwardBatch(effect, batch), effect.key, now)
            if batch.head.flags & FLAG_STREAM:
                self._parts.give(PathAssigned(batch.source), effect.key, now)

    def _resolve(self, effect: Resolve, now: float) -> None:
        if effect.source in self.streams.topics:
            self._parts.give(effect, effect.up, now)
        if effect.up == HERE:
            if effect.fate.outcome != Outcome.RECEIVED:
                self.ledger.end(effect.topic, effect.source, effect.fate)
            self.notifier.tell(effect.source, effect.fate)
        elif not isinstance(effect.up, Here):
            row, name = Return(effect.topic, effect.source, effect.fate, effect.visited), str(effect.up)
            self._parts.give(ReturnOutcome(row, self.commitments.returned(name)), name, now)

    def _tried(self, effect: AttemptEnded, now: float) -> None:
        if effect.source in self.streams.topics:
            self._parts.give(PathReleased(effect.source), "", now)
        self._attempts.add(effect)

    # -- figures

    def status(self) -> dict[str, Any]:
        """How many deliveries are remembered in any state, and how many each path has."""
        paths = [
            {"path": path.name, "is_node": path.is_neighbour, "unsettled": path.unsettled}
            for path in self.machine.paths()
        ]
        held = {"held_bytes": self.machine.held_bytes, "parked": self.machine.parked}
        waiting = self.machine.waiting()
        counts = {"records": self.machine.records(), "waiting": waiting}
        return {**counts, "paths": paths, **held, "streams": self.streams.status()}

    @property
    def repeats(self) -> tuple[int, int]:
        """How many events were released, and how many went along a further path, since the node started."""
        return self.machine.released, self.machine.forwarded_again

    def unsettled(self, name: str) -> int:
        """How many events a neighbour has and did not settle."""
        return self.machine.unsettled(name)

    def attempts(self, source: bytes, seq: int) -> dict[str, Any]:
        """The attempts at one event on this node, the open ones last, and the addresses of its neighbours."""
        return self._attempts.of(source, seq)

    def in_hand(self) -> dict[str, dict[Series, SeqSet]]:
        """For every account the events in flight, once all durable events were offered."""
        self.writer.write(self.paths.now())
        self.paths.soon()  # to make it durable
        return {} if self.offers.is_behind else self.ledger.in_hand()

    def held_by(self, name: str) -> Held | None:
        """The same for one account, by series; None if it is not known."""
        self.writer.write(self.paths.now())
        self.paths.soon()  # to make it durable
        return None if self.offers.is_behind else self.ledger.held_by(name)


def _limits(config: Config) -> AnycastLimits:
    dispatch = config.dispatch
    backoff = Backoff(dispatch.retry_backoff_s_min, dispatch.retry_backoff_s_max)
    return AnycastLimits(config.links.window_events, config.links.window_bytes, backoff)

"""A node's anycast: takes events of topics with a distribution from the journal, gives each to who should have it, and
tells its publisher what became of it.

The machine decides (`reknit.protocol.anycast.machine`); this gives it the journal, connections, gateways and the ledger.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from reknit.backoff import Backoff
from reknit.batch import Batch
from reknit.errors import Gone
from reknit.event import FLAG_STREAM
from reknit.ledger import Stream
from reknit.node.admin.attempts import Attempts
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.gateway_api import OnHanded, OnPath, OnResults, StreamTaker
from reknit.node.anycast.gateway_ends import GatewayReceiver, GatewaySender
from reknit.node.anycast.ledger import Bookings
from reknit.node.anycast.outcome_notifier import Telling
from reknit.node.anycast.senders import Senders
from reknit.node.anycast.shared_subscriptions import SharedSubscriptions
from reknit.node.peers.peers import PeerState
from reknit.node.streams.streams import DISTRIBUTIONS, Here, NodeStreams
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import (
    Attach,
    AttemptEnded,
    DeliverLocally,
    Detach,
    ForwardToNeighbour,
    Input,
    NeighbourOutcomes,
    OfferEvents,
    Resolve,
    SubscriberOutcomes,
)
from reknit.protocol.anycast.machine import AnycastLimits, AnycastMachine
from reknit.protocol.machine import Peer
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.codec import encode
from reknit.wire.links import Return
from reknit.wire.messages import Deliver, Row
from reknit.wire.outcomes import Fate, Want

if TYPE_CHECKING:
    from random import Random

    from reknit.node.node import Node

BOOK_S: Final = 0.02
"""Ends go into the journal together, so often."""
FLOOR_S: Final = 5.0
"""How often it is written down how far everything has ended, without an end to go with it."""
READ_BYTES: Final = 1 << 20


class NodeAnycast:
    """All anycast of one node; `node.anycast`."""

    def __init__(self, node: Node, rng: Random) -> None:
        config = node.config
        self._node = node
        self._loop = asyncio.get_running_loop()
        self.distributions = Distributions(config)
        self.mode = self.distributions.of
        dispatch = config.dispatch
        backoff = Backoff(dispatch.retry_backoff_s_min, dispatch.retry_backoff_s_max)
        limits = AnycastLimits(config.links.window_events, config.links.window_bytes, backoff)
        self.machine = AnycastMachine(node.name, node.links.routes, rng, limits)
        self.bookings = Bookings(node.core, self.distributions.patterns)
        self.streams = NodeStreams(node)
        self.subscriptions = SharedSubscriptions(node, self)
        self.telling = Telling(node, self.machine, self.distributions, self.bookings)
        self._attempts = Attempts(node, self.machine)
        self._under_way = self.streams.topics
        self._stream_takers: set[Peer] = set()
        self._cursor = self._resumed_to = node.journal.end
        self._senders = Senders(node, self.distributions, self.telling, self.soon)
        self._is_scheduled = False
        self._booking: asyncio.TimerHandle | None = None
        self._flooring: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Open the accounts, and take up what was on its way when the node stopped."""
        if self.distributions.is_on:
            self._cursor = self.bookings.open(self._now())
            self._flooring = self._loop.call_later(FLOOR_S, self._move_floor)
            self.kept()

    async def stop(self) -> None:
        """Write down what ended."""
        for timer in (self._booking, self._flooring):
            if timer is not None:
                timer.cancel()
        self._book()
        self.streams.close()
        await self._senders.close()

    def _now(self) -> float:
        return time.monotonic()  # the loop's clock, which may be coarser

    # -- distributions

    def distribution(self, pattern: str) -> str:
        """How the topics that match are distributed; see `reknit.node.anycast.gateway_api`."""
        return self.distributions.of_all(Pattern(pattern))

    def takes_streams(self, topic: str) -> bool:
        """Whether an event of the topic may go in pieces, and somebody is there who takes it so."""
        return self.mode(topic) in DISTRIBUTIONS and self.machine.has_path(topic, is_stream=True)

    # -- paths

    def attach(self, key: Peer, message: Attach) -> None:
        """A new path: everyone hears of it."""
        if message.takes_streams:
            self._stream_takers.add(key)
        self._node.links.interest(self._interests(key, message.pattern), [])
        self.give(message, key)
        self.telling.are_paths_moved = True

    def detach(self, key: Peer, pattern: Pattern, is_clean: bool) -> None:
        """A path is gone."""
        self._node.links.interest([], self._interests(key, pattern))
        self._stream_takers.discard(key)
        self.give(Detach(is_clean), key)
        self.telling.are_paths_moved = True

    def _interests(self, key: Peer, pattern: Pattern) -> list[tuple[str, str]]:
        modes = ("any", "stream") if key in self._stream_takers else ("any",)
        return [(pattern.text, mode) for mode in modes]

    # -- connections

    def left(self, peer_id: int) -> None:
        """A connection is gone, with what it had in hand."""
        self.subscriptions.left(peer_id)
        self.telling.left(peer_id)
        if self._under_way:
            self.streams.left(peer_id)

    def want(self, want: Want, peer: PeerState) -> None:
        """A publisher wants to hear what becomes of its events; what is known already is told at once."""
        self._book()
        self.telling.want(want, peer)

    # -- gateways

    def sender(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None = None,
        resend_released: bool = False,
        source: bytes | None = None,
    ) -> GatewaySender:
        """Somebody who offers events on a topic; see `reknit.node.anycast.gateway_api`."""
        return self._senders.make(topic, on_results, on_path, resend_released, source)

    def receiver(
        self, pattern: str, on_handed: OnHanded, name: str = "", streams: StreamTaker | None = None
    ) -> GatewayReceiver:
        """Somebody who takes events; see `reknit.node.anycast.gateway_api`."""
        receiver = GatewayReceiver(self, Pattern(pattern), on_handed, streams)
        how = (0, name or f"gateway {id(receiver):x}", streams is not None)
        self.attach(receiver, Attach(receiver.pattern, "events", *how))
        self.soon()
        return receiver

    # -- the machine

    def give(self, message: Input, peer: Peer) -> None:
        """Tell the machine; what it wants is done in this turn of the loop, or the next."""
        self.machine.receive(message, peer, self._now())

    def soon(self) -> None:
        """See to what the machine wants when the loop comes round: for calls that don't come from a connection."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._come_round)

    def _come_round(self) -> None:
        self._is_scheduled = False
        self._node.run_machines()

    def kept(self) -> None:
        """More of the journal is durable: offer what is to be delivered, as far as there is room for it in memory."""
        config, journal, now = self._node.config.anycast, self._node.journal, self._now()
        while (
            self.distributions.is_on
            and self._cursor < journal.end
            and self.machine.held_bytes < config.held_bytes_max
            and self.machine.parked < config.parked_max
        ):
            try:
                run = journal.read(self._cursor, journal.end, READ_BYTES)
            except Gone:
                self._cursor = journal.start
                continue
            for index, entry in enumerate(run.entries):
                mode = self.mode(entry.head.topic)
                if mode != JOURNAL:
                    self._offer(Batch(entry.head, run.cut(index, index + 1), entry.position), mode, now)
            self._cursor = run.next_position

    def _offer(self, batch: Batch, mode: str, now: float) -> None:
        stream, head = (batch.topic, batch.source), batch.head
        who = self.telling.wanting.get(batch.source)
        deadline = None
        if head.ttl_ms:
            deadline = now + (head.time_us + head.ttl_ms * 1000 - time.time_ns() // 1000) / 1e6
        resend, keeps = (who.resend, False) if who is not None else (True, True)
        ranges = [(head.first, head.stop)]
        if batch.position < self._resumed_to:
            ranges = self.bookings.owed(stream, *ranges[0])
        for start, stop in ranges:
            self.bookings.start(batch.position, stream, start, stop)
            offered = OfferEvents(batch.cut(start, stop), mode, resend, keeps=keeps, deadline=deadline)
            self.give(offered, HERE)

    def run(self, now: float) -> None:
        """Do what the machine wants, and tell those who wait."""
        while effects := self.machine.take_effects():
            for effect in effects:
                match effect:
                    case DeliverLocally():
                        self._hand(effect, now)
                    case ForwardToNeighbour():
                        self._pass(effect, now)
                    case Resolve():
                        self._resolve(effect)
                    case AttemptEnded():
                        self._tried(effect)
            self.kept()
        if self.telling.is_due:
            self.telling.tell_all()
        if self.bookings.is_due and self._booking is None:
            self._booking = self._loop.call_later(BOOK_S, self._book_later)

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return self.machine.has_effects or self.telling.is_due

    def _load(self, effect: DeliverLocally | ForwardToNeighbour) -> Batch | None:
        """The events, cut to the range; None if retention removed them meanwhile."""
        if effect.batch is not None:
            if effect.batch.head.flags & FLAG_STREAM and effect.source not in self._under_way:
                return None  # it was given up within this very turn
            return effect.batch.cut(effect.start, effect.stop)
        found = self._node.find(effect.topic, effect.source, effect.start, effect.stop)
        if len(found) == 1 and found[0].count == effect.stop - effect.start:
            return found[0]
        return None

    def _hand(self, effect: DeliverLocally, now: float) -> None:
        batch = self._load(effect)
        if batch is None:
            self._vanish(effect)
        elif isinstance(effect.key, GatewayReceiver):
            effect.key.hand(batch, effect.attempt)
        else:
            assert isinstance(effect.key, tuple)
            peer_id, sub = effect.key
            header = Deliver(sub, batch.head.length, -1, effect.attempt)
            self._node.peers.send_buffers(peer_id, [encode(header), batch.data])
        if batch is not None and batch.head.flags & FLAG_STREAM:
            self.streams.handed(batch.source, effect.key)

    def _vanish(self, effect: DeliverLocally | ForwardToNeighbour) -> None:
        text = "retention removed it before it was delivered"
        fate = Fate(effect.start, effect.stop, Outcome.REJECTED, Code.DATA_LOSS, text, self._node.name)
        if isinstance(effect, ForwardToNeighbour):
            # as if the neighbour had said so
            self.give(NeighbourOutcomes([Return(effect.topic, effect.source, fate, [])]), effect.key)
        else:
            row = Row(effect.topic, effect.source, effect.start, effect.stop, fate.outcome, fate.code, text)
            self.give(SubscriberOutcomes([row]), effect.key)

    def _pass(self, effect: ForwardToNeighbour, now: float) -> None:
        batch = self._load(effect)
        if batch is None:
            self._vanish(effect)
        else:
            self._node.links.forward(effect, batch, now)
            if batch.head.flags & FLAG_STREAM:
                self.streams.handed(batch.source, effect.key)

    def _resolve(self, effect: Resolve) -> None:
        if effect.source in self._under_way:
            self.streams.resolved(effect)
        if effect.up == HERE:
            if effect.fate.outcome != Outcome.RECEIVED:
                self.bookings.end(effect.topic, effect.source, effect.fate)
            self.telling.tell(effect.source, effect.fate)
        elif not isinstance(effect.up, Here):
            row = Return(effect.topic, effect.source, effect.fate, effect.visited)
            self._node.links.give_back(str(effect.up), row)

    def _tried(self, effect: AttemptEnded) -> None:
        if effect.source in self._under_way:
            self.streams.tried(effect.source)
        self._attempts.add(effect)

    def status(self) -> dict[str, Any]:
        """How many deliveries are remembered in any state, and what each path has."""
        paths = [
            {"path": path.name, "is_node": path.is_neighbour, "unsettled": path.unsettled}
            for path in self.machine.paths()
        ]
        held = {"held_bytes": self.machine.held_bytes, "parked": self.machine.parked}
        waiting = self.machine.waiting()
        counts = {"records": self.machine.records(), "waiting": waiting}
        return {**counts, "paths": paths, **held, "streams": self.streams.status()}

    def attempts(self, source: bytes, seq: int) -> dict[str, Any]:
        """The attempts at one event on this node, those that have not ended last, and where its neighbours are."""
        return self._attempts.of(source, seq)

    # -- the ledger

    def in_hand(self) -> dict[str, dict[Stream, SeqSet]]:
        """For every account what is under way, where all that is kept has been looked at."""
        self._book()
        return self.bookings.in_hand() if self._cursor >= self._node.journal.end else {}

    def _book_later(self) -> None:
        self._booking = None
        self._book()
        self._node.run_machines()

    def _move_floor(self) -> None:
        """Let retention remove what nobody here waits for, also while nothing is delivered."""
        self._flooring = self._loop.call_later(FLOOR_S, self._move_floor)
        self.bookings.move_floor(self._cursor, self._now())
        self._node.run_machines()

    def _book(self) -> None:
        if self.bookings.is_due:
            self.bookings.flush(self._cursor, self._now())

"""Links between nodes: which nodes are reachable, over which path, and the messages on each link.

The machine in `reknit.protocol.routing.routes` decides. This module gives it connections, and stores
the state that has to outlast them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from reknit import environment
from reknit.config import Config
from reknit.event import FLAG_STREAM
from reknit.node.core.core import Core
from reknit.node.links.checks import objection, unsound
from reknit.node.links.flows import Flows
from reknit.node.links.forwarding_table import ForwardingTable, Origins
from reknit.node.links.link_connections import IncomingLink, LinkConnection
from reknit.node.links.outgoing import OutgoingLinks
from reknit.node.links.positions import NeighbourPositions, SavedLinks
from reknit.node.peers.peers import PeerState
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.replication.state_file import StateFile
from reknit.outcome import Code
from reknit.protocol.anycast.inputs import (
    ForwardBatch,
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourUp,
    OfferEvents,
    RoutesChanged,
    Stall,
)
from reknit.protocol.dispatch.inputs import PeerBlocked
from reknit.protocol.machine import MadeDurable, NextTurn, Peer, PeerLeft
from reknit.protocol.routing.known_node import Interest
from reknit.protocol.routing.routes import (
    DropLink,
    Interests,
    LinkDown,
    LinkUp,
    Rerouted,
    Routes,
    SendToNeighbour,
    SourceDeclared,
    SubscriptionsChanged,
)
from reknit.protocol.streams.inputs import OfferStream, UpstreamGone
from reknit.wire.codec import Frames, Item, encode
from reknit.wire.links import (
    Announce,
    AskWhole,
    Beat,
    Carry,
    Forward,
    Got,
    Link,
    LinkState,
    Pull,
    Return,
    Returned,
)
from reknit.wire.messages import Message
from reknit.wire.streams import Abort, Piece, Room

log = logging.getLogger("reknit.node")

FILE: Final = "links.json"


class Links:
    """All links of one node."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        epoch: str,
        urls: Sequence[str],
        core: Core,
        distribution: Callable[[str], str],
        make_publisher: MakePublisher,
        run_machines: Callable[[], None],
        run_soon: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings = config.links
        instance = environment.time_us() * 1000
        self.routes = Routes(
            node_name, instance, settings.beat_s, settings.timeout_s, settings.edge, settings.nodes_max
        )
        self._make_hello: Callable[[int], Link] = lambda cost: Link(
            node_name, instance, cost, settings.edge, list(urls), epoch
        )
        self.run_machines = run_machines
        self._parts = core.parts
        self._now = clock
        self._file = StateFile(config, FILE, SavedLinks)
        saved, save_soon = self._file.value, self._file.save_soon
        self.table = ForwardingTable(
            routes=self.routes,
            core=core,
            origins=Origins(
                saved.origins, node_name, save_soon, {source for _, source in core.journal.ledger.published}
            ),
            distribution=distribution,
            announce=self._announce,
        )
        self.flows = Flows(
            config=config,
            node_name=node_name,
            epoch=epoch,
            journal=core.journal,
            tail=core.tail,
            table=self.table,
            positions=NeighbourPositions(self._file),
            make_publisher=make_publisher,
            on_forwarded=core.responses.forwarded,
            current=self.connection,
            pump_soon=run_soon,
        )
        self.outgoing = OutgoingLinks(
            config=config, node_name=node_name, owner=self, added=saved.added, save_soon=save_soon
        )
        self.by_peer: dict[Peer, IncomingLink] = {}
        self._connections: dict[str, list[LinkConnection]] = {}
        self._were_linked = False
        self._is_grown = False
        """Whether more of the journal is durable, or may be read, since the last `perform`."""
        self._returns: dict[str, list[Return]] = {}

    async def stop(self) -> None:
        """Disconnect from all."""
        await self.outgoing.stop()
        await self.flows.stop()
        self._file.close()

    # -- connections

    def hello(self, connection: LinkConnection) -> Link:
        """How this node introduces itself."""
        return self._make_hello(connection.cost)

    def take(self, item: Item, connection: LinkConnection) -> None:
        """A message or batches came over a connection."""
        name, now = connection.name, self._now()
        if isinstance(item, Link):
            self._greeted(item, connection)
            return
        if not name or name not in self._connections:
            return  # it was dismissed, and sent this before it noticed
        if problem := unsound(item):
            connection.dismiss(Code.INVALID_ARGUMENT, problem)
            return
        match item:
            case LinkState() | Announce() | AskWhole() | Beat():
                self.routes.receive(item, name, now)
            case Forward() | Carry():
                connection.announce(item)
                if item.size == 0 and isinstance(item, Carry):
                    self.flows.take(name, item, [], True)
            case Frames():
                self._take_frames(item, connection, now)
            case Piece() | Room() | Abort():
                self._parts.give(item, name, now)
            case Returned(rows=rows):
                self._parts.give(NeighbourOutcomes(rows), name, now)
            case Pull():
                self.flows.pulled(name, item, connection)
            case Got(position=position):
                self.flows.got(name, position)
            case _:
                log.debug("ignored %r", item)

    def take_from_peer(self, item: Item, peer: PeerState) -> None:
        """A node that connected to this one sent a message or batches."""
        connection = self.by_peer.get(peer.id)
        if connection is None:
            connection = self.by_peer[peer.id] = IncomingLink(peer, self._settings.cost)
        self.take(item, connection)

    def _take_frames(self, frames: Frames, connection: LinkConnection, now: float) -> None:
        taken = connection.take(frames)
        if taken is None:
            log.error("%s sent batches that were not announced: dropped", connection.name)
            return
        message, batches, is_last = taken
        if isinstance(message, Carry):
            self.flows.take(connection.name, message, batches, is_last)
            return
        deadline = now + message.ttl_ms / 1000 if message.ttl_ms else None
        for batch in batches:
            offered = OfferEvents(
                batch,
                message.mode,
                message.resend,
                message.origin,
                tuple(message.visited),
                deadline=deadline,
                attempts=message.attempts,
            )
            is_stream = batch.head.flags & FLAG_STREAM
            self._parts.give(OfferStream(offered) if is_stream else offered, connection.name, now)

    def _greeted(self, hello: Link, connection: LinkConnection) -> None:
        problem = objection(hello, self.routes.name, self._settings, set(self._connections))
        if problem:
            connection.dismiss(Code.FAILED_PRECONDITION, problem)
            return
        if isinstance(connection, IncomingLink):
            connection.send(self.hello(connection))
        connection.introduced(hello)
        several = self._connections.setdefault(hello.node, [])
        several.append(connection)
        if len(several) == 1:
            self._up(hello.node, connection)

    def _up(self, name: str, connection: LinkConnection) -> None:
        assert connection.hello is not None
        now = self._now()
        log.info("linked to %s", name)
        self._were_linked = True
        self.flows.up(name, connection.hello.journal)
        self.routes.receive(LinkUp(connection.cost), name, now)
        self._parts.give(NeighbourUp(), name, now)
        self.flows.pull(name, connection)

    def lost(self, connection: LinkConnection) -> None:
        """A connection is gone; another one to the same node may take its place."""
        if isinstance(connection, IncomingLink):
            self.by_peer.pop(connection.peer.id, None)
        name = connection.name
        several = self._connections.get(name, [])
        connection.gone()
        if connection not in several:
            return
        was_first = several[0] is connection
        several.remove(connection)
        if was_first:
            self._down(name)
        if not several:
            del self._connections[name]
        elif was_first:
            self._up(name, several[0])
        self.run_machines()

    def _down(self, name: str) -> None:
        log.info("the link to %s is gone", name)
        now = self._now()
        self.flows.down(name)
        self.routes.receive(LinkDown(), name, now)
        self._tell_routes(now)
        self._parts.give(UpstreamGone(is_final=True), name, now)
        self._parts.give(NeighbourDown(), name, now)

    # -- a part of the core

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """From another part, the journal or a connection."""
        match message:
            case PeerLeft():
                if (connection := self.by_peer.get(peer)) is not None:
                    self.lost(connection)
            case PeerBlocked(is_blocked=is_blocked):
                if (connection := self.by_peer.get(peer)) is not None and connection.name:
                    self._parts.give(Stall(is_blocked), connection.name, now)
            case MadeDurable() | NextTurn():
                self._is_grown = True
            case Interests():
                self.routes.receive(message, self.routes.name, now)
            case ForwardBatch():
                self._forward(message, now)
            case Return():
                self._returns.setdefault(str(peer), []).append(message)
            case SendToNeighbour(peer=name, message=content):
                self.say(str(name), content)
            case SubscriptionsChanged():
                self.table.subscriptions_changed()
            case SourceDeclared(source=source):
                self._declared(source)

    def perform(self, now: float) -> None:
        """Send messages that are due, announce changes, and send events that are new."""
        self.table.announce_changes()
        self._tell_routes(now)
        returns, self._returns = self._returns, {}
        for name, rows in returns.items():
            self.say(name, Returned(rows))
        self._is_grown = False
        self.flows.pump()

    @property
    def is_due(self) -> bool:
        """Whether `perform` has something to do. A node that never had a link has not."""
        is_on = self._were_linked or self.outgoing.were_there
        news = self._returns or self.routes.has_effects or self.table.is_due
        return is_on and bool(news or self._is_grown)

    def tick(self, now: float) -> None:
        """Send heartbeats, and drop neighbours that send none."""
        self.routes.tick(now)

    def next_deadline(self) -> float | None:
        """When the next heartbeat is due."""
        return self.routes.next_deadline()

    def _tell_routes(self, now: float) -> None:
        is_new = has_new_routes = False
        for effect in self.routes.take_effects():
            match effect:
                case SendToNeighbour(peer=peer, message=message):
                    self.say(str(peer), message)
                case DropLink(peer=peer):
                    log.warning("%s sent nothing for too long: the link is closed", peer)
                    for connection in list(self._connections.get(str(peer), [])):
                        connection.drop()
                case Rerouted(has_new_routes=yes):
                    is_new, has_new_routes = True, has_new_routes or yes
        if is_new:
            self.table.forget()
            self._parts.give(RoutesChanged(), self.routes.name, now)
        if has_new_routes:
            self.flows.look_back()

    def say(self, name: str, message: Message) -> None:
        """Send a message to a neighbour, if it is still connected."""
        several = self._connections.get(name)
        if several:
            several[0].send(message)

    def _announce(self, added: list[Interest], removed: list[Interest]) -> None:
        """Subscribers of this node came and went: all other nodes are told."""
        self.routes.receive(Interests(added, removed), self.routes.name, self._now())

    def _forward(self, message: ForwardBatch, now: float) -> None:
        """Forward events to a neighbour, after all messages about routes."""
        self._tell_routes(now)
        wanted, batch = message.wanted, message.batch
        several = self._connections.get(str(wanted.key))
        if not several:
            return  # the connection was lost in this turn: the machine will be told next
        ttl_ms = max(1, int((wanted.deadline - now) * 1000)) if wanted.deadline is not None else 0
        header = Forward(
            batch.head.length,
            wanted.origin,
            wanted.mode,
            wanted.resend,
            wanted.attempts,
            ttl_ms,
            wanted.visited,
        )
        several[0].send_buffers([encode(header), batch.data])

    def _declared(self, source: bytes) -> None:
        """A publisher with a lasting source is here now, wherever it was before."""
        if self.table.declared(source):
            for connection in (one for several in self._connections.values() for one in several):
                connection.forget_origin(source)

    # -- questions

    def connection(self, name: str) -> LinkConnection | None:
        """The one in use to a neighbour, if it is connected."""
        several = self._connections.get(name)
        return several[0] if several else None

    def connections(self) -> list[LinkConnection]:
        """The connections that are in use, one to each neighbour."""
        return [several[0] for several in self._connections.values()]

    def url(self, name: str) -> str:
        """The address of a neighbour."""
        connection = self.connection(name)
        return connection.url if connection is not None else ""

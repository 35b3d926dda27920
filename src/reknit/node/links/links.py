"""Links between nodes: which nodes are reachable, over which path, and the messages on each link.

The machine in `reknit.protocol.routing.routes` decides. This module gives it connections, and stores
the state that has to outlast them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from reknit import environment
from reknit.batch import Batch
from reknit.config import Config
from reknit.event import FLAG_STREAM
from reknit.node.core.core import Core
from reknit.node.links.anycast_inputs import AnycastInputs
from reknit.node.links.checks import objection, parse_link, unsound
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
    ForwardToNeighbour,
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourUp,
    OfferEvents,
    RoutesChanged,
    Stall,
)
from reknit.protocol.routing.known_node import Interest
from reknit.protocol.routing.routes import (
    DropLink,
    Interests,
    LinkDown,
    LinkUp,
    Rerouted,
    Routes,
    SendToNeighbour,
)
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
        make_publisher: MakePublisher,
        run_machines: Callable[[], None],
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
        self._anycast: AnycastInputs
        self._file = StateFile(config, FILE, SavedLinks)
        saved, save_soon = self._file.value, self._file.save_soon
        self.table = ForwardingTable(
            routes=self.routes,
            core=core,
            origins=Origins(
                saved.origins, node_name, save_soon, {source for _, source in core.journal.ledger.published}
            ),
            distribution=lambda topic: self._anycast.mode(topic),
            announce=self.interest,
        )
        self.flows = Flows(
            config=config,
            node_name=node_name,
            epoch=epoch,
            journal=core.journal,
            table=self.table,
            positions=NeighbourPositions(self._file),
            make_publisher=make_publisher,
            on_forwarded=core.responses.forwarded,
            current=self.connection,
        )
        self.outgoing = OutgoingLinks(
            config=config, node_name=node_name, owner=self, added=saved.added, save_soon=save_soon
        )
        self.by_peer: dict[int, IncomingLink] = {}
        self._connections: dict[str, list[LinkConnection]] = {}
        self._were_linked = False
        self._returns: dict[str, list[Return]] = {}
        self._now = asyncio.get_running_loop().time

    def feed(self, anycast: AnycastInputs) -> None:
        """Feed this anycast from now on."""
        self._anycast = anycast

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
                self._anycast.streams.take_from_node(item, name)
            case Returned(rows=rows):
                self._anycast.give(NeighbourOutcomes(rows), name)
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
            if batch.head.flags & FLAG_STREAM:
                self._anycast.streams.begin_from_node(batch, offered, connection.name)
            else:
                self._anycast.give(offered, connection.name)

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
        log.info("linked to %s", name)
        self._were_linked = True
        self.flows.up(name)
        self.routes.receive(LinkUp(connection.cost), name, self._now())
        self._anycast.give(NeighbourUp(), name)
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
        self.flows.down(name)
        self.routes.receive(LinkDown(), name, self._now())
        self._tell_routes()
        self._anycast.streams.lost_node(name)
        self._anycast.give(NeighbourDown(), name)

    def lost_peer(self, peer_id: int) -> None:
        """A connection to this node is gone."""
        connection = self.by_peer.get(peer_id)
        if connection is not None:
            self.lost(connection)

    def blocked(self, peer_id: int, is_blocked: bool) -> None:
        """A connection's send buffer is full, or has room again."""
        connection = self.by_peer.get(peer_id)
        if connection is not None and connection.name:
            self._anycast.give(Stall(is_blocked), connection.name)

    # -- the machine

    def run(self, now: float) -> None:
        """Send messages that are due, and announce changes."""
        self.table.announce_changes()
        self._tell_routes()
        returns, self._returns = self._returns, {}
        for name, rows in returns.items():
            self.say(name, Returned(rows))

    @property
    def is_due(self) -> bool:
        """Whether `run` has something to do. A node that never had a link has not."""
        is_on = self._were_linked or self.outgoing.were_there
        return is_on and bool(self._returns or self.routes.has_effects or self.table.is_due)

    def _tell_routes(self) -> None:
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
            self._anycast.give(RoutesChanged(), self.routes.name)
            self._anycast.paths_changed()
        if has_new_routes:
            self.flows.look_back()

    def say(self, name: str, message: Message) -> None:
        """Send a message to a neighbour, if it is still connected."""
        several = self._connections.get(name)
        if several:
            several[0].send(message)

    # -- anycast

    def interest(self, added: list[Interest], removed: list[Interest]) -> None:
        """Subscribers of this node came and went: all other nodes are told."""
        self.routes.receive(Interests(added, removed), self.routes.name, self._now())

    def forward(self, effect: ForwardToNeighbour, batch: Batch, now: float) -> None:
        """Forward events to a neighbour, after all messages about routes."""
        self._tell_routes()
        several = self._connections.get(str(effect.key))
        if not several:
            return  # the connection was lost in this turn: the machine will be told next
        ttl_ms = max(1, int((effect.deadline - now) * 1000)) if effect.deadline is not None else 0
        header = Forward(
            batch.head.length,
            effect.origin,
            effect.mode,
            effect.resend,
            effect.attempts,
            ttl_ms,
            effect.visited,
        )
        several[0].send_buffers([encode(header), batch.data])

    def give_back(self, name: str, row: Return) -> None:
        """Tell a neighbour the outcome of events that it forwarded."""
        self._returns.setdefault(name, []).append(row)

    # -- replication

    def subscriptions_changed(self) -> None:
        """Somebody subscribed or unsubscribed."""
        self.table.subscriptions_changed()

    def declared(self, source: bytes) -> None:
        """A publisher with a lasting source is here now, wherever it was before."""
        if self.table.declared(source):
            for connection in (one for several in self._connections.values() for one in several):
                connection.forget_origin(source)

    # -- figures

    def connection(self, name: str) -> LinkConnection | None:
        """The one in use to a neighbour, if it is connected."""
        several = self._connections.get(name)
        return several[0] if several else None

    def connections(self) -> list[LinkConnection]:
        """The connections that are in use, one to each neighbour."""
        return [several[0] for several in self._connections.values()]

    def rows(self) -> list[dict[str, Any]]:
        """Every link and every node that is known, for people."""
        ways = self.routes.reachable()
        rows: list[dict[str, Any]] = [
            {
                "node": name,
                "state": "linked" if name in self._connections else ("reached" if name in ways else "away"),
                "cost": ways[name].cost if name in ways else None,
                "via": ways[name].first if name in ways else "",
                "is_edge": known.state.is_edge,
                "url": self.url(name),
                "subscriptions": len(known.interests),
                "unsettled": self._anycast.unsettled(name),
                "sent": self.flows.sent(name),
                "received": self.flows.received(name),
                "problem": "",
            }
            for name, known in sorted(self.routes.known.items())
            if name != self.routes.name
        ]
        rows += [
            {"node": "", "state": "waiting", "cost": one.cost, "via": "", "is_edge": False, "url": one.url}
            | {"subscriptions": 0, "unsettled": 0, "sent": 0, "received": 0, "problem": one.problem}
            for one in self.outgoing
            if not one.name
        ]
        return rows

    def url(self, name: str) -> str:
        """The address of a neighbour."""
        connection = self.connection(name)
        return connection.url if connection is not None else ""

    def ask_add(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Add a link, for an admin request; returns all links. Raises `InvalidConfig`, `Refused`."""
        self.outgoing.add(*parse_link(str(args["to"]), self._settings.cost))
        return self.rows()

    def ask_remove(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Remove a link, for an admin request; returns the links that are left. Raises `InvalidConfig`, `Refused`."""
        self.outgoing.remove(parse_link(str(args["to"]))[0])
        return self.rows()

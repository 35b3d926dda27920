"""Links between nodes: which nodes are reachable, over which path, and the messages on each link.

The machine in `reknit.protocol.routing.routes` decides. This module gives it connections, and keeps
the state that has to outlast them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.batch import Batch
from reknit.event import FLAG_STREAM
from reknit.node.links.checks import objection, unsound
from reknit.node.links.flows import Flows
from reknit.node.links.forwarding_table import Wants
from reknit.node.links.link_connections import Line, LineIn
from reknit.node.links.outgoing import OutgoingLinks
from reknit.node.peers.peers import PeerState
from reknit.node.replication.state_file import Notes
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

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

FILE: Final = "links.json"


class Remembered(msgspec.Struct):
    """What a node knows of its links across restarts."""

    positions: dict[str, tuple[str, int]] = {}
    """By neighbour: its journal's epoch, and the position up to which everything from there is kept here."""
    origins: dict[str, str] = {}
    added: dict[str, int] = {}
    """Links that were added while the node ran, and their costs."""


class Links:
    """All links of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.config = node.config
        settings = node.config.links
        self._instance = time.time_ns()
        self.routes = Routes(
            node.name, self._instance, settings.beat_s, settings.timeout_s, settings.edge, settings.nodes_max
        )
        self.is_on = False
        self.by_peer: dict[int, LineIn] = {}
        self.outgoing = OutgoingLinks(self)
        self._lines: dict[str, list[Line]] = {}
        self.flows = Flows(self)
        self._returns: dict[str, list[Return]] = {}
        self.wants = Wants(self)
        self.notes = Notes(node.config, FILE, Remembered)
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Part from all."""
        await self.outgoing.stop()
        await self.flows.stop()
        self.notes.close()

    def hello(self, line: Line) -> Link:
        """What this node says of itself."""
        edge, urls = self.config.links.edge, list(self.node.urls)
        return Link(self.routes.name, self._instance, line.cost, edge, urls, self.node.epoch)

    # -- lines

    def take(self, item: Item, line: Line) -> None:
        """Something came over a line."""
        name, now = line.name, self._loop.time()
        if isinstance(item, Link):
            self._greeted(item, line)
            return
        if not name or name not in self._lines:
            return  # it was dismissed, and what it sent before it knew comes to nothing
        if problem := unsound(item):
            line.dismiss(Code.INVALID_ARGUMENT, problem)
            return
        match item:
            case LinkState() | Announce() | AskWhole() | Beat():
                self.routes.receive(item, name, now)
            case Forward() | Carry():
                line.announce(item)
                if item.size == 0 and isinstance(item, Carry):
                    self.flows.take(name, item, [], True)
            case Frames():
                self._take_frames(item, line, now)
            case Piece() | Room() | Abort():
                self.node.anycast.streams.take_from_node(item, name)
            case Returned(rows=rows):
                self.node.anycast.give(NeighbourOutcomes(rows), name)
            case Pull():
                self.flows.pulled(name, item, line)
            case Got(position=position):
                self.flows.got(name, position)
            case _:
                log.debug("ignored %r", item)

    def take_from_peer(self, item: Item, peer: PeerState) -> None:
        """A node that connected to this one says something."""
        line = self.by_peer.get(peer.id)
        if line is None:
            line = self.by_peer[peer.id] = LineIn(peer, self.config.links.cost)
        self.take(item, line)

    def _take_frames(self, frames: Frames, line: Line, now: float) -> None:
        taken = line.take(frames)
        if taken is None:
            log.error("%s sent batches that were not announced: dropped", line.name)
            return
        message, batches, is_last = taken
        if isinstance(message, Carry):
            self.flows.take(line.name, message, batches, is_last)
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
                self.node.anycast.streams.begin_from_node(batch, offered, line.name)
            else:
                self.node.anycast.give(offered, line.name)

    def _greeted(self, hello: Link, line: Line) -> None:
        problem = objection(hello, self.routes.name, self.config.links, set(self._lines))
        if problem:
            line.dismiss(Code.FAILED_PRECONDITION, problem)
            return
        if isinstance(line, LineIn):
            line.send(self.hello(line))
        else:
            line.problem = ""
        line.hello = hello
        lines = self._lines.setdefault(hello.node, [])
        lines.append(line)
        if len(lines) == 1:
            self._up(hello.node, line)

    def _up(self, name: str, line: Line) -> None:
        assert line.hello is not None
        log.info("linked to %s", name)
        self.is_on = True
        self.flows.make(name)
        self.routes.receive(LinkUp(line.cost), name, self._loop.time())
        self.node.anycast.give(NeighbourUp(), name)
        self.flows.pull(name, line)

    def lost(self, line: Line) -> None:
        """A line is gone; another one to the same node may take its place."""
        if isinstance(line, LineIn):
            self.by_peer.pop(line.peer.id, None)
        name, line.hello = line.name, None
        lines = self._lines.get(name, [])
        if line not in lines:
            return
        was_first = lines[0] is line
        lines.remove(line)
        line.told.clear()
        if was_first:
            self._down(name)
        if not lines:
            del self._lines[name]
        elif was_first:
            self._up(name, lines[0])
        self.came_round()

    def _down(self, name: str) -> None:
        log.info("the link to %s is gone", name)
        self.flows.down(name)
        self.routes.receive(LinkDown(), name, self._loop.time())
        self._tell_routes()
        self.node.anycast.streams.lost_node(name)
        self.node.anycast.give(NeighbourDown(), name)

    def lost_peer(self, peer_id: int) -> None:
        """A connection to this node is gone."""
        line = self.by_peer.get(peer_id)
        if line is not None:
            self.lost(line)

    def blocked(self, peer_id: int, is_blocked: bool) -> None:
        """A connection takes nothing for now, or takes something again."""
        line = self.by_peer.get(peer_id)
        if line is not None and line.name:
            self.node.anycast.give(Stall(is_blocked), line.name)

    # -- the machine

    def run(self, now: float) -> None:
        """Say what is to be said, and see to what changed."""
        self.wants.look()
        self._tell_routes()
        returns, self._returns = self._returns, {}
        for name, rows in returns.items():
            self.say(name, Returned(rows))

    @property
    def is_due(self) -> bool:
        return self.is_on and bool(self._returns or self.routes.has_effects or self.wants.is_moved)

    def came_round(self) -> None:
        """Let the node do what this led to."""
        self.node.run_machines()

    def _tell_routes(self) -> None:
        is_new = has_new_routes = False
        for effect in self.routes.take_effects():
            match effect:
                case SendToNeighbour(peer=peer, message=message):
                    self.say(str(peer), message)
                case DropLink(peer=peer):
                    log.warning("%s gave no sign: the link is closed", peer)
                    for line in list(self._lines.get(str(peer), [])):
                        line.drop()
                case Rerouted(has_new_routes=yes):
                    is_new, has_new_routes = True, has_new_routes or yes
        if is_new:
            self.wants.forget()
            self.node.anycast.give(RoutesChanged(), self.routes.name)
            self.node.anycast.telling.are_paths_moved = True
        if has_new_routes:
            self.flows.look_back()

    def say(self, name: str, message: Message) -> None:
        """Say something to a neighbour, if it is still there."""
        lines = self._lines.get(name)
        if lines:
            lines[0].send(message)

    # -- anycast

    def interest(self, added: list[Interest], removed: list[Interest]) -> None:
        """Subscribers of this node came and went: all others hear of it."""
        self.routes.receive(Interests(added, removed), self.routes.name, self._loop.time())

    def forward(self, effect: ForwardToNeighbour, batch: Batch, now: float) -> None:
        """Give events to a neighbour, after all that is known of the routes."""
        self._tell_routes()
        lines = self._lines.get(str(effect.key))
        if not lines:
            return  # the line was lost in this very turn: the machine is about to hear of it
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
        lines[0].send_buffers([encode(header), batch.data])

    def give_back(self, name: str, row: Return) -> None:
        """Tell a neighbour what became of what it gave."""
        self._returns.setdefault(name, []).append(row)

    # -- events that everyone gets

    def subscriptions_moved(self) -> None:
        """Somebody subscribed, or does so no more."""
        self.wants.is_moved = True

    def declared(self, source: bytes) -> None:
        """A publisher with a lasting source is here now, wherever it was before."""
        if self.wants.declared(source):
            for line in (line for lines in self._lines.values() for line in lines):
                line.told.discard(source)

    # -- questions

    def line(self, name: str) -> Line | None:
        """The one in use to a neighbour, if it is there."""
        lines = self._lines.get(name)
        return lines[0] if lines else None

    def lines(self) -> list[Line]:
        """The lines that are in use, one to each neighbour."""
        return [lines[0] for lines in self._lines.values()]

    def rows(self) -> list[dict[str, Any]]:
        """Every link and every node that is known, for people."""
        ways = self.routes.reachable()
        rows: list[dict[str, Any]] = [
            {
                "node": name,
                "state": "linked" if name in self._lines else ("reached" if name in ways else "away"),
                "cost": ways[name].cost if name in ways else None,
                "via": ways[name].first if name in ways else "",
                "is_edge": known.state.is_edge,
                "url": self.url(name),
                "subscriptions": len(known.interests),
                "unsettled": self.node.anycast.machine.unsettled(name),
                "sent": self.flows.sent(name),
                "received": self.flows.received(name),
                "problem": "",
            }
            for name, known in sorted(self.routes.known.items())
            if name != self.routes.name
        ]
        rows += [
            {"node": "", "state": "waiting", "cost": line.cost, "via": "", "is_edge": False, "url": line.url}
            | {"subscriptions": 0, "unsettled": 0, "sent": 0, "received": 0, "problem": line.problem}
            for line in self.outgoing
            if not line.name
        ]
        return rows

    def url(self, name: str) -> str:
        """Where a neighbour can be connected to."""
        lines = self._lines.get(name)
        return lines[0].url if lines else ""

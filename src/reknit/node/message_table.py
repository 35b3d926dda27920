"""Which part of a node takes which message, by the message's type."""

from __future__ import annotations

from reknit.node.admin.admin_requests import AdminResponder
from reknit.node.anycast.anycast import NodeAnycast
from reknit.node.core.core import Core
from reknit.node.links.links import Links
from reknit.node.peers.peers import PeerState
from reknit.node.peers.reception import MessageTable
from reknit.node.recovery.caches import CacheMessage, NodeCaches
from reknit.node.replication.bridges import Bridges
from reknit.protocol.routing.routes import SourceEntered
from reknit.wire.codec import Frames, Item
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
    Recorded,
    Returned,
    Skip,
    Via,
)
from reknit.wire.messages import (
    Ack,
    Ask,
    Bye,
    Credit,
    Declare,
    Expect,
    Holding,
    Ping,
    Pong,
    Settle,
    Subscribe,
    Unsubscribe,
)
from reknit.wire.outcomes import Want
from reknit.wire.recovery import (
    Heartbeat,
    Offer,
    Recover,
    Recovered,
    Require,
    Survey,
    Surveyed,
)
from reknit.wire.streams import Abort, Begin, Piece, Room


class NodeMessages:
    """Passes the messages of peers to the parts of one node. `table` has a handler for every type."""

    def __init__(
        self,
        *,
        core: Core,
        links: Links,
        anycast: NodeAnycast,
        caches: NodeCaches,
        bridges: Bridges,
        admin: AdminResponder,
    ) -> None:
        self._core = core
        self._links = links
        self._anycast = anycast
        self._caches = caches
        self._bridges = bridges
        self._admin = admin

    def table(self) -> MessageTable:
        """The handlers, by type of message."""
        linked = (Link, LinkState, Announce, AskWhole, Beat, Forward, Returned, Recorded, Pull, Carry, Got)
        recovery = (Recover, Recovered, Survey, Surveyed, Heartbeat, Offer, Require)
        return {
            Frames: self._frames,
            Declare: self._declare,
            Credit: self._credit,
            Holding: self._holding,
            Subscribe: self._subscribe,
            Settle: self._settle,
            Unsubscribe: self._unsubscribe,
            Want: self._want,
            Begin: self._begin,
            Piece: self._chunk,
            Room: self._chunk,
            Abort: self._chunk,
            Skip: self._skip,
            Via: self._via,
            **dict.fromkeys(recovery, self._recovery),
            **dict.fromkeys(linked, self._link),
            Ask: self._ask,
            Ping: self._ping,
            Pong: self._pong,
            Bye: self._bye,
        }

    # -- publishers and subscribers

    def _frames(self, item: Frames, peer: PeerState, now: float) -> None:
        if peer.id in self._links:
            self._links.take(item, peer, now)
            return
        published = self._caches.take_frames(item, peer, now)
        if published is not None:
            if peer.is_copier:
                self._core.intake.copies(peer.id)
            self._core.receive(published, peer.id, now)

    def _declare(self, item: Declare, peer: PeerState, now: float) -> None:
        self._core.receive(item, peer.id, now)

    def _credit(self, item: Credit, peer: PeerState, now: float) -> None:
        if not self._anycast.subscriptions.take(item, peer.id, str(peer)):
            self._core.receive(item, peer.id, now)

    def _holding(self, item: Holding, peer: PeerState, now: float) -> None:
        self._core.receive(item, peer.id, now)

    def _subscribe(self, item: Subscribe, peer: PeerState, now: float) -> None:
        if not self._anycast.subscriptions.take(item, peer.id, str(peer)):
            self._core.receive(item, peer.id, now)

    def _settle(self, item: Settle, peer: PeerState, now: float) -> None:
        if not self._anycast.subscriptions.take(item, peer.id, str(peer)):
            self._core.receive(item, peer.id, now)

    def _unsubscribe(self, item: Unsubscribe, peer: PeerState, now: float) -> None:
        if not self._anycast.subscriptions.take(item, peer.id, str(peer)):
            self._core.receive(item, peer.id, now)

    def _want(self, item: Want, peer: PeerState, now: float) -> None:
        self._anycast.want(item, peer.id)

    # -- streams

    def _begin(self, item: Begin, peer: PeerState, now: float) -> None:
        self._anycast.streams.receive(item, peer.id, now)

    def _chunk(self, item: Piece | Room | Abort, peer: PeerState, now: float) -> None:
        if peer.id in self._links:
            self._links.take(item, peer, now)
        else:
            self._anycast.streams.receive(item, peer.id, now)

    # -- other nodes

    def _skip(self, item: Skip, peer: PeerState, now: float) -> None:
        expected = self._core.intake.expected(item.source)
        if expected < item.start and (item.is_ahead or expected > 1):
            peer.send(Expect(item.source, expected))  # skipping would pass over events that may be found
        elif self._bridges.skipped(item):
            self._core.say_when_durable(peer.id, Ack(item.source, item.stop - 1), now)

    def _via(self, item: Via, peer: PeerState, now: float) -> None:
        self._bridges.visited.learn(item)
        if self._core.intake.expected(item.source) == 1:
            self._core.parts.give(SourceEntered(item.source, tuple(item.nodes)), peer.id, now)

    def _recovery(self, item: CacheMessage, peer: PeerState, now: float) -> None:
        self._caches.take(item, peer)

    def _link(self, item: Item, peer: PeerState, now: float) -> None:
        self._links.take(item, peer, now)

    # -- anyone

    def _ask(self, item: Ask, peer: PeerState, now: float) -> None:
        self._admin.answer(item, peer)

    def _ping(self, item: Ping, peer: PeerState, now: float) -> None:
        peer.send(Pong())

    def _pong(self, item: Pong, peer: PeerState, now: float) -> None:
        """The peer is alive: its connection has noted when bytes came."""

    def _bye(self, item: Bye, peer: PeerState, now: float) -> None:
        peer.leave()

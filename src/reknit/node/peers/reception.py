"""Who connects to a node is greeted here, and what they say goes to the part of the node that it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reknit.node.peers.peers import PeerState
from reknit.outcome import Code
from reknit.wire.codec import Frames, Item, Raw
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
    Returned,
    Skip,
    Via,
)
from reknit.wire.messages import (
    VERSION,
    Ask,
    Bye,
    Credit,
    Declare,
    Hello,
    Ping,
    Pong,
    Settle,
    Subscribe,
    Unsubscribe,
    Welcome,
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

if TYPE_CHECKING:
    from reknit.node.node import Node


class Reception:
    """Knows all parts of a node; made when they are there."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._permissions = node.permissions
        self._core = node.core
        self._links = node.links
        self._anycast = node.anycast
        self._caches = node.caches

    def greet(self, item: Item, peer: PeerState) -> None:
        """The first message on a connection."""
        if not isinstance(item, Hello):
            peer.dismiss(Code.FAILED_PRECONDITION, "the first message on a connection is a hello")
            return
        if item.version != VERSION:
            text = f"this node speaks version {VERSION} of the protocol, not {item.version}: upgrade the older side"
            peer.dismiss(Code.UNIMPLEMENTED, text)
            return
        if self._permissions is not None and not self._permissions.greet(item.token, peer):
            return
        peer.name = item.name
        peer.is_welcome = True
        heartbeat_s = self._node.config.transport.heartbeat_s
        bytes_max = self._node.config.limits.frame_bytes_max
        peer.send(Welcome(VERSION, self._node.name, self._node.epoch, heartbeat_s, bytes_max))

    def take(self, item: Item, peer: PeerState, now: float) -> None:
        """Any other one."""
        if self._permissions is not None and not self._permissions.admits(item, peer):
            return
        match item:
            case Frames() if peer.id in self._links.by_peer:
                self._links.take_from_peer(item, peer)
            case Frames():
                published = self._caches.take_frames(item, peer)
                if published is not None:
                    self._core.receive(published, peer.id, now)
            case Declare(source=source):
                self._links.declared(source)
                self._core.receive(item, peer.id, now)
            case Credit() | Unsubscribe() | Settle() | Subscribe() if self._anycast.subscriptions.take(
                item, peer
            ):
                pass
            case Credit():
                self._core.receive(item, peer.id, now)
            case Unsubscribe():
                self._core.receive(item, peer.id, now)
                self._links.subscriptions_moved()
            case Want():
                self._anycast.want(item, peer)
            case Piece() | Room() | Abort() if peer.id in self._links.by_peer:
                self._links.take_from_peer(item, peer)
            case Begin() | Piece() | Room() | Abort():
                self._anycast.streams.take(item, peer)
            case Skip():
                self._node.bridges.skipped(item)
            case Via():
                self._node.bridges.vias.learn(item)
            case Settle():
                self._caches.watch(item, peer)
                self._core.receive(item, peer.id, now)
            case Subscribe():
                self._links.subscriptions_moved()
                self._caches.watch(item, peer)
                self._core.receive(item, peer.id, now)
            case Recover() | Recovered() | Survey() | Surveyed() | Heartbeat() | Offer() | Require():
                self._caches.take(item, peer)
            case Link() | LinkState() | Announce() | AskWhole() | Beat():
                self._links.take_from_peer(item, peer)
            case Forward() | Returned() | Pull() | Carry() | Got():
                self._links.take_from_peer(item, peer)
            case Ask():
                self._node.answers.answer(item, peer)
            case Ping():
                peer.send(Pong())
            case Pong():
                pass
            case Bye():
                peer.is_leaving = True
                peer.connection.close()
            case Raw() | Hello():
                peer.dismiss(Code.INVALID_ARGUMENT, f"{type(item).__name__} has no place here")
            case _:
                text = f"{type(item).__name__} is for a client to receive, not to send"
                peer.dismiss(Code.INVALID_ARGUMENT, text)

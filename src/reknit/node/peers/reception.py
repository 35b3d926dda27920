"""Greets every peer that connects to a node, and passes its messages on by their type.

first message is   Hello with our version        Welcome; the peer may send anything from now on
                   anything else                 Bye, and the connection is closed
later message has  a type in the table           its handler, if the peer has permission
                   any other type                Bye, and the connection is closed

A peer that asks for much does not keep others waiting: after `TURN_S`, the rest of its messages waits for the next turn
of the event loop. One that does not read what it is sent waits until it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from reknit.node.peers.peers import Hold, PeerState
from reknit.node.peers.permissions import Permissions
from reknit.outcome import Code
from reknit.trust.connection_counts import ConnectionCounts
from reknit.wire.codec import Item, Raw
from reknit.wire.messages import VERSION, Hello, Welcome
from reknit.wire.recovery import Recover, Survey

TURN_S: Final = 0.01
"""How long the messages of one peer may take in one turn of the event loop."""
LARGE: Final = (Recover, Survey)
"""Requests whose answers may be large: each is answered before the next is looked at."""

TakeMessage = Callable[[Any, PeerState, float], None]
MessageTable = Mapping[type[Any], TakeMessage]
"""By type of message: its handler, which is given the message, its sender and the time."""

OnError = Callable[[str, Exception, PeerState], None]


class Reception:
    """The handshake of one node, and its table of handlers."""

    def __init__(
        self,
        *,
        welcome: Welcome,
        permissions: Permissions | None,
        table: MessageTable,
        run_machines: Callable[[], None],
        call_soon: Callable[..., object],
        clock: Callable[[], float],
        on_error: OnError | None = None,
        connections: ConnectionCounts | None = None,
    ) -> None:
        self._connections = connections
        self._welcome = welcome
        self._permissions = permissions
        self._table = table
        self._run_machines = run_machines
        self._call_soon = call_soon
        self._clock = clock
        self._on_error = on_error
        """Reports an error while a message is handled, and ends its peer; without it, the error is raised."""

    def receive(self, items: list[Item], peer: PeerState, now: float) -> None:
        """Everything that arrived together, in order. What has to wait is kept with the peer."""
        for at, item in enumerate(items):
            if peer.is_blocked and peer.must_wait:
                peer.wait(items[at:], Hold.UNREAD)
                return
            if at and self._clock() - now > TURN_S:
                peer.wait(items[at:], Hold.TURN)
                self._call_soon(self._take_turn, peer)
                return
            self._handle(item, peer, now)
            if peer.is_leaving:
                return

    def _handle(self, item: Item, peer: PeerState, now: float) -> None:
        try:
            if peer.is_welcome:
                self.take(item, peer, now)
            else:
                self.greet(item, peer)
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(type(item).__name__, error, peer)
        if isinstance(item, LARGE):
            self._run_machines()

    def resume(self, peer: PeerState) -> None:
        """Process what a peer sent while it did not read, or while it was not its turn."""
        self.receive(peer.take_waiting(), peer, self._clock())
        if not peer.waiting:
            peer.go_on()

    def _take_turn(self, peer: PeerState) -> None:
        if peer.waiting and peer.is_reading:
            self.resume(peer)
            self._run_machines()

    def greet(self, item: Item, peer: PeerState) -> None:
        """The first message on a connection."""
        if not isinstance(item, Hello):
            peer.dismiss(Code.FAILED_PRECONDITION, "the first message on a connection must be a hello")
            return
        if item.version != VERSION:
            text = f"this node speaks version {VERSION} of the protocol, not {item.version}: upgrade the older side"
            peer.dismiss(Code.UNIMPLEMENTED, text)
            return
        if self._permissions is not None and not self._permissions.greet(item.token, peer):
            return
        if self._connections is not None and not self._enters(peer, self._connections):
            return
        peer.welcomed(item.name, item.role)
        peer.send(self._welcome)

    def _enters(self, peer: PeerState, connections: ConnectionCounts) -> bool:
        """Whether the quota of its identity lets a peer in. If not, it was told."""
        if why := connections.enter(peer.quota_name, peer.connection.peer):
            peer.dismiss(Code.RESOURCE_EXHAUSTED, why)
        else:
            peer.is_counted = True
        return not why

    def left(self, peer: PeerState) -> None:
        """A peer's connection is gone."""
        if peer.is_counted and self._connections is not None:
            self._connections.leave(peer.quota_name)

    def take(self, item: Item, peer: PeerState, now: float) -> None:
        """Any later message."""
        if self._permissions is not None and not self._permissions.admits(item, peer):
            return
        take = self._table.get(type(item))
        if take is not None:
            take(item, peer, now)
            return
        name = type(item).__name__
        is_misplaced = isinstance(item, Raw | Hello)
        text = (
            f"{name} is not a message for a node"
            if is_misplaced
            else f"{name} is sent by nodes, not by clients"
        )
        peer.dismiss(Code.INVALID_ARGUMENT, text)

"""The connections of a node: which peers are connected, and whether they are alive."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reknit.config import Config
from reknit.frame import Buffer
from reknit.outcome import Code
from reknit.transport.connection import Connection
from reknit.wire.codec import encode
from reknit.wire.messages import Bye, Message, Ping

log = logging.getLogger("reknit.node")

CHECK_GAP_S: Final = 1.0
"""Checks come twice a second. After a longer gap it was this process that was suspended or busy, not its peers."""


@dataclass(slots=True, eq=False)
class PeerState:
    """One connection, seen from the node."""

    id: int
    connection: Connection
    opened_at: float
    name: str = ""
    identity: str = ""
    """The name that it has proven, where there are permissions."""
    is_welcome: bool = False
    is_leaving: bool = False

    def __str__(self) -> str:
        return f"{self.name or 'peer'} ({self.connection.peer})"

    def welcomed(self, name: str) -> None:
        """It introduced itself, and may send anything from now on."""
        self.name = name
        self.is_welcome = True

    def identified(self, identity: str) -> None:
        """It has proven this name."""
        self.identity = identity

    def leave(self, message: Bye | None = None) -> None:
        """Close the connection after everything that was sent, and this message."""
        self.is_leaving = True
        if message is not None:
            self.send(message)
        self.connection.close()

    def send(self, message: Message) -> None:
        """Send a message."""
        self.connection.send((encode(message),))

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send frames, in one go."""
        self.connection.send(buffers)

    def dismiss(self, code: Code, text: str) -> None:
        """Say why, and close; once."""
        if not self.is_leaving:
            log.warning("closing the connection of %s: %s: %s", self, code.name, text)
            self.leave(Bye(code, text))


class Peers:
    """All connections of a node, by connection and by id."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._by_connection: dict[Connection, PeerState] = {}
        self._by_id: dict[int, PeerState] = {}
        self._count = 0
        self._checked_at = float("inf")
        self._resumed_at = 0.0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[PeerState]:
        return iter(list(self._by_id.values()))

    def get(self, peer_id: object) -> PeerState | None:
        """The peer with an id, if it is still connected."""
        return self._by_id.get(peer_id) if isinstance(peer_id, int) else None

    def send_buffers(self, peer_id: object, buffers: Sequence[Buffer]) -> None:
        """Send frames to a peer, if it is still connected."""
        peer = self.get(peer_id)
        if peer is not None:
            peer.connection.send(buffers)

    def of(self, connection: Connection) -> PeerState | None:
        """The peer at a connection."""
        return self._by_connection.get(connection)

    def add(self, connection: Connection, now: float) -> PeerState:
        """A new connection. Beyond the limit it is refused and closed."""
        self._count += 1
        self._checked_at = min(self._checked_at, now)
        peer = PeerState(self._count, connection, now)
        self._by_connection[connection] = self._by_id[peer.id] = peer
        if len(self._by_id) > self._config.limits.connections_max:
            text = f"the node has {self._config.limits.connections_max} connections (limits.connections_max)"
            peer.dismiss(Code.RESOURCE_EXHAUSTED, text)
        return peer

    def remove(self, connection: Connection) -> PeerState | None:
        """A connection is gone; returns the peer that it belonged to."""
        peer = self._by_connection.pop(connection, None)
        if peer is not None:
            del self._by_id[peer.id]
        return peer

    def check(self, now: float) -> None:
        """Ping quiet peers; close the connections of those that stay silent or never introduced themselves."""
        settings = self._config.transport
        if now - self._checked_at > CHECK_GAP_S:
            log.warning(
                "this process was suspended for %.1f s: peers get time to be heard", now - self._checked_at
            )
            self._resumed_at = now
        self._checked_at = now
        for peer in self:
            silent_s = now - max(peer.connection.received_at, self._resumed_at)
            open_s = now - max(peer.opened_at, self._resumed_at)
            if not peer.is_welcome and open_s > settings.hello_timeout_s:
                peer.dismiss(Code.DEADLINE_EXCEEDED, "no hello arrived in time (transport.hello_timeout_s)")
            elif silent_s > settings.peer_timeout_s:
                log.warning("%s was silent for %.1f s: connection closed", peer, silent_s)
                peer.connection.abort()
            elif silent_s > settings.heartbeat_s and not peer.is_leaving:
                peer.send(Ping())

"""The connections of a node: which peers are connected, and whether they are alive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from reknit.config import Config
from reknit.config.quotas import Quotas
from reknit.frame import Buffer
from reknit.node.peers.budget import BudgetedPeer, PeerBudget
from reknit.outcome import Code
from reknit.transport.connection import Connection
from reknit.trust.identities import OURSELVES, Identity
from reknit.trust.rules import ANONYMOUS
from reknit.wire.codec import Item, encode
from reknit.wire.messages import COPIER, Bye, Message, Ping

log = logging.getLogger("reknit.node")

CHECK_GAP_S: Final = 1.0
"""Checks come twice a second. After a longer gap it was this process that was suspended or busy, not its peers."""

UNSENT_BYTES: Final = 100
"""About what each buffer that waits in a connection takes beside its bytes."""


class Hold(Enum):
    """Why nothing is read from a peer."""

    JOURNAL = "too much of what was received is not durable yet"
    UNREAD = "it does not read what it is sent"
    TURN = "its requests took long, and others come first"


WAITS: Final = frozenset({Hold.UNREAD, Hold.TURN})
"""The reasons for which what it sent is not processed either; one at a time."""


@dataclass(slots=True, eq=False)
class PeerState:
    """One connection, seen from the node."""

    id: int
    connection: Connection
    opened_at: float
    budget: PeerBudget = field(default_factory=PeerBudget)
    name: str = ""
    proof: Identity = OURSELVES
    """Who it has proven to be, where there are permissions."""
    is_copier: bool = False
    """Whether it brings events that another node has stored."""
    is_welcome: bool = False
    is_counted: bool = False
    """Whether it counts as a connection of its identity."""
    is_leaving: bool = False
    is_blocked: bool = False
    """Whether its connection takes no more for now."""
    _unsent: int = 0
    """How many buffers were sent since then."""
    waiting: list[Item] = field(default_factory=list)
    """What it sent and is not processed yet: once it reads, or in the next turn of the event loop."""
    _holds: set[Hold] = field(default_factory=set)
    """Why nothing is read from it."""
    _progress: tuple[int, float] = (0, 0.0)
    """How much was held for it at the last look, and when that last became less."""

    def __str__(self) -> str:
        return f"{self.name or 'peer'} ({self.connection.peer})"

    @property
    def address(self) -> str:
        """Where it connects from, without the port."""
        return self.connection.peer.rpartition(":")[0]

    @property
    def held_bytes(self) -> int:
        """The memory that its connection takes, with that for managing many short messages."""
        return self.connection.held_bytes + self._unsent * UNSENT_BYTES

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody knows who it is: it has not introduced itself, or has proven no name where that matters."""
        return not self.is_welcome or self.identity == ANONYMOUS

    @property
    def quota_name(self) -> str:
        """The identity whose quotas it uses; empty for a part of this node, which has none."""
        return "" if self.connection.is_inside else self.identity or ANONYMOUS

    @property
    def must_wait(self) -> bool:
        """Whether it has to read before its next message is processed."""
        return self.is_blocked and self.budget.is_short(self)

    def welcomed(self, name: str, role: str) -> None:
        """It introduced itself, and may send anything from now on."""
        self.name, self.is_copier = name, role == COPIER
        self.is_welcome = True

    @property
    def identity(self) -> str:
        """The name that it has proven, where there are permissions."""
        return self.proof.name

    def identified(self, proof: Identity) -> None:
        """It has proven who it is."""
        self.proof = proof

    def expel(self, why: str) -> None:
        """It is no longer who it was: its proof was revoked, or has expired."""
        self.dismiss(Code.UNAUTHENTICATED, why)

    def blocked(self, is_blocked: bool) -> None:
        """Its connection takes no more, or takes bytes again."""
        self.is_blocked = is_blocked
        self._unsent = 0

    # -- reading

    @property
    def is_reading(self) -> bool:
        """Whether it reads what it is sent, as far as is known."""
        return Hold.UNREAD not in self._holds

    def wait(self, items: list[Item], why: Hold) -> None:
        """Keep what it sent for later, and read nothing more."""
        self.waiting += items
        self.hold(why)
        self._holds -= WAITS - {why}

    def go_on(self) -> None:
        """Nothing of what it sent waits any more."""
        for why in WAITS:
            self.release(why)

    def take_waiting(self) -> list[Item]:
        """What is to be processed now."""
        items, self.waiting = self.waiting, []
        return items

    def hold(self, why: Hold) -> None:
        """Read nothing more for now."""
        if not self._holds:
            self.connection.pause_reading()
        self._holds.add(why)

    def release(self, why: Hold) -> None:
        """This is no reason any more to read nothing."""
        if why in self._holds:
            self._holds.discard(why)
            if not self._holds:
                self.connection.resume_reading()

    def heard_at(self, now: float) -> float:
        """When it last showed that it is alive. One that nothing is read from shows it by reading."""
        if not self._holds:
            return self.connection.received_at
        held, read_at = self._progress
        before, held = held, self.held_bytes
        self._progress = held, now if held < before or self.is_reading else read_at
        return max(self.connection.received_at, self._progress[1])

    # -- sending

    def send(self, message: Message) -> None:
        """Send a message."""
        self.send_buffers((encode(message),))

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send frames, in one go."""
        if self.is_blocked:
            if not self.budget.admits(self):
                return
            self._unsent += len(buffers)
        self.connection.send(buffers)

    def leave(self, message: Bye | None = None) -> None:
        """Close the connection after everything that was sent, and this message; at once if it does not read."""
        self.is_leaving = True
        if not self.is_reading:
            self.connection.abort()
            return
        if message is not None:
            self.connection.send((encode(message),))
        self.connection.close()

    def dismiss(self, code: Code, text: str) -> None:
        """Say why, and close; once."""
        if not self.is_leaving:
            self.dismissal(code, text)()

    def dismissal(self, code: Code, text: str) -> Callable[[], None]:
        """Take nothing more from it; what is returned says why, and closes."""
        log.warning("closing the connection of %s: %s: %s", self, code.name, text)
        self.is_leaving = True
        return lambda: self.leave(Bye(code, text))

    def end(self, code: Code, text: str) -> None:
        """Close at once, and drop what it was sent: it would not read why."""
        if not self.is_leaving:
            log.warning("closing the connection of %s: %s: %s", self, code.name, text)
            self.is_leaving = True
        self.connection.abort()


class Peers:
    """All connections of a node, by connection and by id."""

    def __init__(self, config: Config, quotas: Quotas | None = None) -> None:
        self._config = config
        self._budget = PeerBudget(config.limits, quotas)
        self._by_connection: dict[Connection, PeerState] = {}
        self._by_id: dict[Hashable, PeerState] = {}
        self.clients: list[Callable[[], Iterable[BudgetedPeer]]] = []
        """The clients of gateways that something is held for; they are in the same budget."""
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

    def quota_name(self, peer_id: object) -> str:
        """The identity whose quotas a peer uses; empty for a part of this node, and for one that is gone."""
        peer = self.get(peer_id)
        return "" if peer is None else peer.quota_name

    def send_buffers(self, peer_id: Hashable, buffers: Sequence[Buffer]) -> None:
        """Send frames to a peer, if it is still connected."""
        peer = self._by_id.get(peer_id)
        if peer is None:
            return
        if peer.is_blocked:
            peer.send_buffers(buffers)
        else:
            peer.connection.send(buffers)

    def of(self, connection: Connection) -> PeerState | None:
        """The peer at a connection."""
        return self._by_connection.get(connection)

    def add(self, connection: Connection, now: float) -> PeerState:
        """A new connection. Beyond the limit it is refused and closed."""
        self._count += 1
        self._checked_at = min(self._checked_at, now)
        peer = PeerState(self._count, connection, now, self._budget)
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
            peer.waiting.clear()
            self._budget.forget(peer)
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
            silent_s = now - max(peer.heard_at(now), self._resumed_at)
            open_s = now - max(peer.opened_at, self._resumed_at)
            is_late = open_s > settings.hello_timeout_s and not peer.connection.is_inside
            if not peer.is_welcome and is_late:
                peer.dismiss(Code.DEADLINE_EXCEEDED, "no hello arrived in time (transport.hello_timeout_s)")
            elif silent_s > settings.peer_timeout_s:
                did = "was silent" if peer.is_reading else "did not read"
                log.warning("%s %s for %.1f s: connection closed", peer, did, silent_s)
                peer.connection.abort()
            elif silent_s > settings.heartbeat_s and not peer.is_leaving:
                peer.send(Ping())
        self._budget.review(self)
        self._budget.review_clients(client for clients in self.clients for client in clients())

"""The inputs and effects of routing, and what other parts of a node tell links about its subscriptions and sources."""

from __future__ import annotations

import msgspec

from reknit.protocol.machine import Peer
from reknit.protocol.routing.known_node import Interest
from reknit.wire.links import Announce, AskWhole, Beat, LinkState
from reknit.wire.messages import Message


class LinkUp(msgspec.Struct, frozen=True):
    """A neighbour was linked; `cost` is the cost from here."""

    cost: int


class LinkDown(msgspec.Struct, frozen=True):
    """The connection to a neighbour was lost."""


class Interests(msgspec.Struct, frozen=True):
    """Subscriptions of this node were added and removed."""

    added: list[Interest]
    removed: list[Interest] = []


class SubscriptionsChanged(msgspec.Struct, frozen=True):
    """Somebody subscribed or unsubscribed on this node: its interests may have changed."""


class SourceDeclared(msgspec.Struct, frozen=True):
    """A publisher with a lasting source is on this node now, wherever it was before."""

    source: bytes


class SourceEntered(msgspec.Struct, frozen=True):
    """A bridge brings a source that was not on this node before, and that has passed these nodes."""

    source: bytes
    nodes: tuple[str, ...]


class SendToNeighbour(msgspec.Struct, frozen=True):
    """Send a message to a neighbour."""

    peer: Peer
    message: Message


class DropLink(msgspec.Struct, frozen=True):
    """A neighbour was silent for too long: close the connection to it."""

    peer: Peer


class Rerouted(msgspec.Struct, frozen=True):
    """Routes changed; or only subscriptions of other nodes."""

    has_new_routes: bool
    """Whether recent events may have been passed over, because a route or a subscription was gone for a while."""
    met: str = ""
    """The node whose subscriptions are known for the first time."""


Input = LinkUp | LinkDown | Interests | LinkState | Announce | AskWhole | Beat
Effect = SendToNeighbour | DropLink | Rerouted

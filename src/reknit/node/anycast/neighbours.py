"""A node's links, as far as anycast needs them. `reknit.node.links.links.Links` implements it."""

from __future__ import annotations

from typing import Protocol

from reknit.batch import Batch
from reknit.protocol.anycast.inputs import ForwardToNeighbour
from reknit.protocol.routing.known_node import Interest
from reknit.protocol.routing.routes import Routes
from reknit.wire.links import Return
from reknit.wire.messages import Message


class Neighbours(Protocol):
    """The linked nodes, and the routes to all others."""

    routes: Routes

    def interest(self, added: list[Interest], removed: list[Interest]) -> None:
        """Subscribers of this node came and went."""

    def forward(self, effect: ForwardToNeighbour, batch: Batch, now: float) -> None:
        """Forward events to a neighbour."""

    def give_back(self, name: str, row: Return) -> None:
        """Tell a neighbour the outcome of events that it forwarded."""

    def say(self, name: str, message: Message) -> None:
        """Send a message to a neighbour, if it is still connected."""

    def url(self, name: str) -> str:
        """The address of a neighbour."""

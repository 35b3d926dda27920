"""A node's anycast, as far as links need it. `reknit.node.anycast.anycast.NodeAnycast` implements it."""

from __future__ import annotations

from typing import Protocol

from reknit.batch import Batch
from reknit.protocol.anycast.inputs import Input, OfferEvents
from reknit.protocol.machine import Peer
from reknit.wire.streams import Abort, Piece, Room


class NeighbourStreams(Protocol):
    """A node's streams, as links feed them."""

    def take_from_node(self, item: Piece | Room | Abort, name: str) -> None:
        """A message of a stream came from a neighbour."""

    def begin_from_node(self, batch: Batch, offered: OfferEvents, name: str) -> None:
        """A neighbour begins a stream."""

    def lost_node(self, name: str) -> None:
        """The link to a neighbour is gone."""


class AnycastInputs(Protocol):
    """A node's anycast, as links feed it."""

    @property
    def streams(self) -> NeighbourStreams:
        """Payloads that come in chunks."""

    def mode(self, topic: str) -> str:
        """How a topic is distributed."""

    def give(self, message: Input, peer: Peer) -> None:
        """Feed the machine."""

    def paths_changed(self) -> None:
        """Paths to subscribers came or went, on this node or elsewhere."""

    def unsettled(self, name: str) -> int:
        """How many events a neighbour has and did not settle."""

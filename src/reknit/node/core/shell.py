"""What a core is given by the program around it: connections, a disk, and what peers may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from reknit.address import Address
from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.protocol.machine import Peer
from reknit.protocol.publish.admission import Refusal


class Shell(Protocol):
    """Runs a core: sends its bytes and makes its journal durable."""

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Send these frames to a peer, in one go; nothing happens if it is not connected any more."""

    def commit(self, number: int, sync: bool) -> None:
        """Make everything staged by now durable; then call `durable(number, …)`, or `failed` and retry."""


class NodeShell(msgspec.Struct, frozen=True):
    """Runs the core of a node: sends over connections, and commits in a thread."""

    send: Callable[[Peer, Sequence[Buffer]], None]
    commit: Callable[[int, bool], None]


class Edge(Protocol):
    """Decides what peers may do; see `reknit.node.peers.permissions`."""

    def permit(self, peer: Peer, source: bytes, topic: str) -> Refusal | None:
        """Why a peer may not publish as a source on a topic."""

    def may_be(self, peer: Peer, address: Address) -> bool:
        """Whether events from an address may come from a peer."""

    def owner(self, peer: Peer, topic: str) -> str:
        """The identity that owns what a peer publishes on a topic; empty if nobody does."""

    def refused(self, peer: Peer, batch: Batch, refusal: Refusal) -> None:
        """Events were refused, and are not stored."""

    def inspect(self, peer: Peer, batch: Batch) -> Refusal | None:
        """Why valid events with attributes may not come from a peer."""

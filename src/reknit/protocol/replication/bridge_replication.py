"""A bridge: a replication that tells the target which nodes a source has passed, so that events don't go in circles.

    BatchesTaken      of known sources: as in `replication.py`; else AskVisited, and they and all later ones wait
    VisitedKnown      SendToTarget(Via) for each source, then what waited
    SourceUp          the name of the node that is read, which its sources have passed
    SourceDown        what waited is delivered again
    TargetUp          SendToTarget(Via) for all sources; what came from this node is not copied back: AcceptAtSource

A batch whose source passed the target is accepted at the source, and so is one below `reknit/`, unless the route is for
those: dead letters and audit entries stay on their node. One that came over too many bridges is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reknit.batch import Batch
from reknit.outcome import Code
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.replication import replication
from reknit.protocol.replication.replica_publisher import ReplicaPublisher
from reknit.protocol.replication.replication import BatchesTaken, Replication, TargetDown, TargetUp
from reknit.topic import is_reserved
from reknit.wire.links import Via


class SourceUp(msgspec.Struct, frozen=True):
    """The node that is read is connected; its name."""

    node: str


class SourceDown(msgspec.Struct, frozen=True):
    """The session with the node that is read is over: it delivers again what was not accepted."""


class VisitedKnown(msgspec.Struct, frozen=True):
    """The nodes that each source had passed when it came to the node that is read."""

    nodes: Mapping[bytes, list[str]]


class AskVisited(msgspec.Struct, frozen=True):
    """Ask the node that is read which nodes these sources have passed; the answer is `VisitedKnown`."""

    sources: list[bytes]


class SendToTarget(msgspec.Struct, frozen=True):
    """Send a message to the target, before the batches that follow."""

    message: Via


Input = replication.Input | SourceUp | SourceDown | VisitedKnown
Effect = replication.Effect | AskVisited | SendToTarget


class BridgeReplication:
    """One route. `hops_max` is how many bridges an event may have come over.

    `copies_reserved`: whether the route is for topics below `reknit/`.
    """

    def __init__(self, copy: Replication, hops_max: int, copies_reserved: bool = False) -> None:
        self.copy = copy
        self.target = ""
        """The target's name, while it is connected."""
        self.source = ""
        """The name of the node that is read, while it is connected."""
        self._hops_max = hops_max
        self._copies_reserved = copies_reserved
        self._visited: dict[bytes, list[str]] = {}
        """The nodes that each source has passed, with the one that is read."""
        self._waiting: list[Batch] = []
        """Batches that wait for `VisitedKnown`."""
        self._effects: list[Effect] = []

    @property
    def publisher(self) -> ReplicaPublisher:
        """Publishes at the target."""
        return self.copy.publisher

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node that is read or from the target, or about them."""
        match message:
            case BatchesTaken(batches=batches):
                self._take(batches, now)
            case VisitedKnown(nodes=nodes):
                self._learn(nodes, now)
            case SourceUp(node=node):
                self.source = node
            case SourceDown():
                self.source, self._waiting = "", []
            case TargetUp(node=node):
                self._target_up(node)
                self._copy(message, peer, now)
            case TargetDown():
                self.target = ""
                self._copy(message, peer, now)
            case _:
                self._copy(message, peer, now)

    def _copy(self, message: replication.Input, peer: Peer, now: float) -> None:
        self.copy.receive(message, peer, now)
        self._effects += self.copy.take_effects()

    def tick(self, now: float) -> None:
        """Time passed."""
        self.copy.tick(now)
        self._effects += self.copy.take_effects()

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return self.copy.next_deadline()

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- batches

    def _take(self, batches: list[Batch], now: float) -> None:
        is_asked = bool(self._waiting)
        sources = dict.fromkeys(batch.source for batch in batches)
        unknown = [source for source in sources if source not in self._visited]
        if is_asked or unknown:
            self._waiting += batches
            if not is_asked:
                self._effects.append(AskVisited(unknown))
        else:
            self._pass_on(batches, now)

    def _learn(self, nodes: Mapping[bytes, list[str]], now: float) -> None:
        for source, passed in nodes.items():
            self._visited[source] = [*passed, self.source]
            self._tell(source)
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._take(waiting, now)

    def _tell(self, source: bytes) -> None:
        """Tell the target which nodes a source has passed. Of what came from there it knows that better."""
        nodes = self._visited[source]
        if self.target not in nodes:
            self._effects.append(SendToTarget(Via(source, nodes)))

    def _pass_on(self, batches: list[Batch], now: float) -> None:
        wanted: list[Batch] = []
        for batch in batches:
            nodes = self._visited[batch.source]
            if self.target in nodes:
                self.copy.accept([batch])  # its events came from there
            elif is_reserved(batch.topic) and not self._copies_reserved:
                self.copy.accept([batch])
            elif len(nodes) > self._hops_max:
                text = f"it came over {len(nodes) - 1} bridges (links.hops_max)"
                self.copy.reject([batch], Code.ABORTED, text)
            else:
                wanted.append(batch)
        self._copy(BatchesTaken(wanted), "", now)

    def _target_up(self, node: str) -> None:
        """The target's name was not known while it was away."""
        self.target = node
        for source in self._visited:
            self._tell(source)
        for source in self.publisher.unacked_sources():
            if node in self._visited.get(source, ()):
                self.copy.accept(self.publisher.withdraw(source))


_MACHINE: type[Machine[Input, Effect]] = BridgeReplication

"""A bridge: a replication that tells the target which nodes a source has passed, so that events don't go in circles.

    BatchesTaken      of known sources: as in `replication.py`; else AskVisited, and they and all later ones wait
    LossTold          the same
    VisitedKnown      SendToTarget(Via) for each source, then what waited
    SourceUp          the name of the node that is read, which its sources have passed
    SourceDown        what waited is delivered and reported again
    TargetUp          SendToTarget(Via) for all sources; what came from this node is not copied back: AcceptAtSource

A batch whose source passed the target is accepted at the source, and so is one below `reknit/`, unless the route is for
those: dead letters and audit entries stay on their node. One that came over too many bridges is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.outcome import Code
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.replication import replication
from reknit.protocol.replication.replica_publisher import ReplicaPublisher
from reknit.protocol.replication.replication import BatchesTaken, LossTold, Replication, TargetDown, TargetUp
from reknit.protocol.replication.told_losses import Loss
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
        self._waiting_losses: list[Loss] = []
        """The same for losses, which come after them."""
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
            case LossTold(loss=loss):
                self._lose([loss], now)
            case VisitedKnown(nodes=nodes):
                self._learn(nodes, now)
            case SourceUp(node=node):
                self.source = node
            case SourceDown():
                self.source, self._waiting, self._waiting_losses = "", [], []
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
        if self._knows([batch.source for batch in batches]):
            self._pass_on(batches, now)
        else:
            self._waiting += batches

    def _knows(self, sources: list[bytes]) -> bool:
        """Whether nothing waits, and it is known which nodes these sources have passed. If not, that is asked."""
        if self._waiting or self._waiting_losses:
            return False
        unknown = [source for source in dict.fromkeys(sources) if source not in self._visited]
        if unknown:
            self._effects.append(AskVisited(unknown))
        return not unknown

    def _learn(self, nodes: Mapping[bytes, list[str]], now: float) -> None:
        for source, passed in nodes.items():
            self._visited[source] = [*passed, self.source]
            self._tell(source)
        waiting, self._waiting = self._waiting, []
        losses, self._waiting_losses = self._waiting_losses, []
        if waiting:
            self._take(waiting, now)
        self._lose(losses, now)

    def _lose(self, losses: list[Loss], now: float) -> None:
        """Pass losses on, after the batches that came before them."""
        if not self._knows([loss.gap.series[1] for loss in losses]):
            self._waiting_losses += losses
            return
        for loss in losses:
            series = loss.gap.series
            if self._stays(series) or len(self._visited[series[1]]) > self._hops_max:
                self.copy.confirm([loss])
            else:
                self._copy(LossTold(loss), "", now)
        self._effects += self.copy.take_effects()

    def _tell(self, source: bytes) -> None:
        """Tell the target which nodes a source has passed. Of what came from there it knows that better."""
        nodes = self._visited[source]
        if self.target not in nodes:
            self._effects.append(SendToTarget(Via(source, nodes)))

    def _pass_on(self, batches: list[Batch], now: float) -> None:
        wanted: list[Batch] = []
        for batch in batches:
            nodes = self._visited[batch.source]
            if self._stays((batch.topic, batch.source)):
                self.copy.accept([batch])
            elif len(nodes) > self._hops_max:
                text = f"it came over {len(nodes) - 1} bridges (links.hops_max)"
                self.copy.reject([batch], Code.ABORTED, text)
            else:
                wanted.append(batch)
        self._copy(BatchesTaken(wanted), "", now)

    def _stays(self, series: Series) -> bool:
        """Whether events are not copied: they came from the target, or each node has its own."""
        topic, source = series
        return self.target in self._visited[source] or (is_reserved(topic) and not self._copies_reserved)

    def _target_up(self, node: str) -> None:
        """The target's name was not known while it was away."""
        self.target = node
        for source in self._visited:
            self._tell(source)
        for source in self.publisher.unacked_sources():
            if node in self._visited.get(source, ()):
                self.copy.accept(self.publisher.withdraw(source))


_MACHINE: type[Machine[Input, Effect]] = BridgeReplication

"""Who wants to hear what becomes of events, and what they are told: outcomes, and whether anyone is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reknit.ledger import Stream
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.gateway_ends import GatewaySender
from reknit.node.anycast.ledger import Bookings
from reknit.node.peers.peers import PeerState
from reknit.outcome import Code, End, Outcome
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.wire.messages import Refuse
from reknit.wire.outcomes import Fate, PathThere, Told, Want

if TYPE_CHECKING:
    from reknit.node.node import Node


class Wanting(msgspec.Struct):
    """Who wants to hear of a source's events: a connection, or a gateway's sender."""

    topic: str
    resend: bool
    peer: int = 0
    sender: GatewaySender | None = None
    has_path: bool | None = None


class Telling:
    """What one node has to tell about anycast, gathered until `tell_all`."""

    def __init__(
        self, node: Node, machine: AnycastMachine, distributions: Distributions, bookings: Bookings
    ) -> None:
        self._node = node
        self._machine = machine
        self._distributions = distributions
        self._bookings = bookings
        self.wanting: dict[bytes, Wanting] = {}
        self._told: dict[bytes, list[Fate]] = {}
        self.are_paths_moved = False
        """Whether paths came or went, here or elsewhere."""

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._told) or self.are_paths_moved

    # -- who wants to hear

    def want(self, want: Want, peer: PeerState) -> None:
        """A publisher wants to hear what becomes of its events; what is known already is told at once."""
        sources_max = self._node.config.limits.sources_max
        if want.source not in self.wanting and len(self.wanting) >= sources_max:
            text = f"the node tells outcomes to {sources_max} sources already (limits.sources_max)"
            peer.send(Refuse(want.source, 1, 1, Code.RESOURCE_EXHAUSTED, text))
            return
        is_journal = self._distributions.of(want.topic) == JOURNAL
        has_path = self.has_path(want.topic)
        self.wanting[want.source] = Wanting(want.topic, want.resend, peer.id, has_path=has_path)
        if not is_journal:
            self._tell_past((want.topic, want.source), want)
        peer.send(PathThere(want.source, has_path, is_journal))

    def left(self, peer_id: int) -> None:
        """A connection is gone."""
        for source in [source for source, who in self.wanting.items() if who.peer == peer_id]:
            del self.wanting[source]

    def has_path(self, topic: str) -> bool:
        """Whether anyone is there to take events: the journal, or a path."""
        return self._distributions.of(topic) == JOURNAL or self._machine.has_path(topic)

    # -- outcomes

    def tell(self, source: bytes, fate: Fate) -> None:
        """Something became of events, if anyone wants to hear of them."""
        if source in self.wanting:
            self._told.setdefault(source, []).append(fate)

    def _tell_past(self, stream: Stream, want: Want) -> None:
        stop = max(want.kept + 1, want.first)
        for start, end, how in self._bookings.ends(stream, want.first, stop):
            is_accepted = how is End.ACCEPTED
            outcome = Outcome.ACCEPTED if is_accepted else Outcome.MODIFIED
            text = "" if is_accepted else "it ended meanwhile, see the dead letters"
            self.tell(stream[1], Fate(start, end, outcome, 0, text, self._node.name))
        published = self._node.journal.ledger.published.get(stream)
        text = "this node's journal does not have it"
        if want.first < stop:
            missing = published.missing(want.first, stop) if published else [(want.first, stop)]
            for start, end in missing:
                self.tell(stream[1], Fate(start, end, Outcome.MODIFIED, Code.UNKNOWN, text, self._node.name))

    def tell_all(self) -> None:
        """Tell everyone what there is to tell."""
        if self.are_paths_moved:
            self._tell_paths()
        told, self._told = self._told, {}
        for source, fates in told.items():
            who = self.wanting.get(source)
            if who is None:
                continue
            if who.sender is not None:
                who.sender.tell(fates)
            elif (peer := self._node.peers.get(who.peer)) is not None:
                peer.send(Told(source, fates))

    def _tell_paths(self) -> None:
        self.are_paths_moved = False
        known: dict[str, bool] = {}
        for source, who in self.wanting.items():
            there = known.get(who.topic)
            if there is None:
                there = known[who.topic] = self.has_path(who.topic)
            if there == who.has_path:
                continue
            who.has_path = there
            if who.sender is not None:
                who.sender.path(there)
            elif (peer := self._node.peers.get(who.peer)) is not None:
                peer.send(PathThere(source, there))

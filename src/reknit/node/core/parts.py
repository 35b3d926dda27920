"""The parts of a node that the core runs beside publishing and dispatch: in which order, and what they pass each other.

A part decides about one capability. It is fed by `receive`, and performs its effects when the core calls `perform`.
Parts know nothing of each other: a message from one to another goes through `Parts.give`, and `TAKERS` names its
receiver. After every input the core performs effects in this order, until there are none:

    dispatch    deliveries to subscribers, which wait for their events
    intake      appends and acknowledgements
    responses   answers to requests that nobody answers
    recovery    answers from the journal and other caches, losses, heartbeats: after the events before them
    links       messages about routes, events for neighbours, outcomes for neighbours
    anycast     deliveries to subscribers that share events, events for neighbours, outcomes for publishers
    streams     chunks of payloads, at once
    …           further parts, in the order in which they were added: relays, bridges and aligners

Then it requests a commit of everything that was staged. All parts are told what became durable (`MadeDurable`), and
which connections are gone (`PeerLeft`) or full (`PeerBlocked`).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from reknit.protocol.anycast import inputs as anycast
from reknit.protocol.links.inputs import EventsRemoved
from reknit.protocol.machine import Peer, earliest
from reknit.protocol.routing import routes
from reknit.protocol.streams import inputs as streams
from reknit.wire.streams import Abort, Piece, Room

ORDER: Final = ("links", "anycast", "streams")
"""The parts with a fixed place. Links come first: a neighbour hears of routes before the events that follow them."""

TAKERS: Final[dict[type[Any], str]] = {
    # from links, about neighbours
    anycast.NeighbourUp: "anycast",
    anycast.NeighbourDown: "anycast",
    anycast.NeighbourOutcomes: "anycast",
    anycast.NeighbourRecorded: "anycast",
    anycast.RoutesChanged: "anycast",
    anycast.Stall: "anycast",
    anycast.OfferEvents: "anycast",  # and from streams, without their payload
    streams.OfferStream: "streams",
    streams.UpstreamGone: "streams",
    Piece: "streams",
    Room: "streams",
    Abort: "streams",
    # from anycast
    routes.Interests: "links",
    anycast.ForwardBatch: "links",
    anycast.ReturnOutcome: "links",  # and from streams
    streams.PathAssigned: "streams",
    streams.PathReleased: "streams",
    anycast.Resolve: "streams",
    # from streams
    anycast.WithdrawStream: "anycast",
    routes.SendToNeighbour: "links",
    # from publishing and dispatch
    routes.SubscriptionsChanged: "links",
    routes.SourceDeclared: "links",
    routes.SourceEntered: "links",
    # from the journal
    EventsRemoved: "links",
}
"""By type of message: the part that takes it from another part."""


class Part(Protocol):
    """A part of a node that the core runs."""

    @property
    def is_due(self) -> bool:
        """Whether `perform` has something to do."""

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """A message from a peer or another part, or what the journal and the connections report to all parts."""

    def perform(self, now: float) -> None:
        """Perform the effects that wait."""

    def tick(self, now: float) -> None:
        """Time passed."""

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""


class Parts:
    """The parts of one core, in the order in which they run."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def add(self, name: str, part: Part) -> None:
        """Run this part from now on."""
        self._parts[name] = part
        places = {one: place for place, one in enumerate(ORDER)}
        self._parts = dict(sorted(self._parts.items(), key=lambda item: places.get(item[0], len(ORDER))))

    def remove(self, name: str) -> None:
        """Run this part no more."""
        self._parts = {one: part for one, part in self._parts.items() if one != name}

    @property
    def is_due(self) -> bool:
        """Whether some part has effects to perform."""
        return True in [part.is_due for part in self._parts.values()]  # faster than `any` of a generator

    def give(self, message: Any, peer: Peer, now: float) -> None:
        """Pass a message from one part to the part that takes it, if the node has that part."""
        part = self._parts.get(TAKERS[type(message)])
        if part is not None:
            part.receive(message, peer, now)

    def tell_all(self, message: Any, peer: Peer, now: float) -> None:
        """Pass on what the journal or a connection reports."""
        for part in self._parts.values():
            part.receive(message, peer, now)

    def perform(self, now: float) -> None:
        """Let each part perform its effects, once."""
        for part in self._parts.values():
            if part.is_due:
                part.perform(now)

    def tick(self, now: float) -> None:
        """Time passed."""
        for part in self._parts.values():
            part.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return earliest([part.next_deadline() for part in self._parts.values()])

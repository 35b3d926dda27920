"""The paths of one node, and which of them a delivery may take: subscribers of this node, and its neighbours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, Protocol

from reknit.protocol.anycast.delivery import AnycastDelivery
from reknit.protocol.anycast.inputs import Attach
from reknit.protocol.anycast.path import CreditBalance, Path
from reknit.protocol.anycast.sharing import shares
from reknit.protocol.anycast.window import FIRST_LINK, Window
from reknit.protocol.machine import Peer
from reknit.topic_index import TopicIndex

Candidate = tuple[int, int, int, Path]
"""(value, cost, last used, path); lower is better."""


class RouteCost(Protocol):
    """The route to one node."""

    @property
    def cost(self) -> int: ...

    @property
    def first(self) -> str:
        """The neighbour that it leads through."""


class RouteTable(Protocol):
    """Routes to the other nodes, as far as anycast needs them."""

    @property
    def name(self) -> str:
        """This node."""

    def reachable(self, without: Collection[str] = ()) -> Mapping[str, RouteCost]:
        """The route to every node that can be reached, without going through some."""

    def destinations(self, topic: str, mode: Literal["any", "stream"]) -> tuple[str, ...]:
        """The other nodes that have subscribers to a topic."""

    def children(self, origin: str, nodes: Iterable[str]) -> Mapping[str, list[str]]:
        """The neighbours that get events of `origin` from this node, and for which of these nodes."""


class Paths:
    """All paths of one node. A neighbour has `link_events` and `link_bytes` unsettled at most."""

    def __init__(self, routes: RouteTable, link_events: int, link_bytes: int) -> None:
        self._routes = routes
        self._link_events = link_events
        self._link_bytes = link_bytes
        self._subscribers: dict[Peer, Path] = {}
        self._neighbours: dict[str, Path] = {}
        self._index: TopicIndex[Path] = TopicIndex()
        self._ids = 0

    # -- they come and go

    def attach(self, message: Attach, key: Peer) -> None:
        """Add a subscriber."""
        assert key not in self._subscribers, "a path is attached once"
        self._ids += 1
        path = Path(
            self._ids,
            key,
            message.name,
            is_neighbour=False,
            credit=CreditBalance(
                message.unit, message.credit, window=Window() if message.unit == "bytes" else None
            ),
            pattern=message.pattern,
            takes_streams=message.takes_streams,
        )
        self._subscribers[key] = path
        self._index.add(message.pattern, path)

    def detach(self, key: Peer) -> Path | None:
        """Remove a subscriber."""
        path = self._subscribers.pop(key, None)
        if path is not None and path.pattern is not None:
            self._index.remove(path.pattern, path)
        return path

    def link(self, name: str) -> None:
        """Add a neighbour."""
        assert name not in self._neighbours, "one link to a neighbour"
        self._ids += 1
        credit = CreditBalance("unsettled", self._link_events, self._link_bytes, Window(FIRST_LINK))
        path = Path(self._ids, name, name, is_neighbour=True, credit=credit, takes_streams=True)
        self._neighbours[name] = path

    def unlink(self, name: str) -> Path | None:
        """Remove a neighbour."""
        return self._neighbours.pop(name, None)

    # -- questions

    def subscriber(self, key: Peer) -> Path | None:
        """The path to a subscriber of this node."""
        return self._subscribers.get(key)

    def neighbour(self, name: str) -> Path | None:
        """The path to a neighbour."""
        return self._neighbours.get(name)

    def of(self, peer: Peer) -> Path | None:
        """The path to a subscriber, or to a neighbour by its name."""
        return self._subscribers.get(peer) or self._neighbours.get(str(peer))

    def all(self) -> list[Path]:
        """The paths to all subscribers and neighbours."""
        return [*self._subscribers.values(), *self._neighbours.values()]

    def has_path(self, topic: str, is_stream: bool = False) -> bool:
        """Whether some path may take an event (or a stream), with or without room for it."""
        if any(path.takes_streams or not is_stream for path in self._index.match(topic)):
            return True
        ways = self._routes.reachable()
        return any(
            node in ways and ways[node].first in self._neighbours
            for node in self._routes.destinations(topic, "stream" if is_stream else "any")
        )

    def candidates(self, delivery: AnycastDelivery) -> list[Candidate]:
        """The paths that may take a delivery, with or without room for it."""
        terms = delivery.terms
        is_closest = terms.mode == "closest"
        found = [
            (0 if is_closest else path.unsettled, 0, path.last_used, path)
            for path in self._index.match(terms.topic)
            if path.id not in delivery.excluded
        ]
        if not terms.is_stream:
            nodes = self._routes.destinations(terms.topic, "any")
        else:
            found = [candidate for candidate in found if candidate[3].takes_streams]
            nodes = self._routes.destinations(terms.topic, "stream")
        ways = self._routes.reachable(delivery.visited) if nodes else {}
        for node in nodes:
            way = ways.get(node)
            path = self._neighbours.get(way.first) if way is not None else None
            if way is not None and path is not None:
                value = way.cost if is_closest else path.unsettled + way.cost
                found.append((value, way.cost, path.last_used, path))
        return found

    def to_all(self, delivery: AnycastDelivery) -> list[Path]:
        """Every subscriber of this node, and every neighbour that leads to others."""
        here, terms = self._routes.name, delivery.terms
        nodes = [node for node in self._routes.destinations(terms.topic, "any") if node != here]
        hops = [hop for hop in self._routes.children(terms.origin, nodes) if hop not in delivery.visited]
        return [
            *self._index.match(terms.topic),
            *(self._neighbours[hop] for hop in hops if hop in self._neighbours),
        ]


def rank(candidate: Candidate) -> tuple[int, int, int, str, int]:
    """The best candidate is the lowest: by value, cost, least recent use, a node's name, age."""
    value, cost, used, path = candidate
    return value, cost, used, path.name if path.is_neighbour else "", path.id


def shares_of(delivery: AnycastDelivery, with_room: list[tuple[Candidate, int]]) -> list[tuple[Path, int]]:
    """The paths that get parts of a delivery, and how many events each. At least one path has room: the second number.

    "closest" shares among the paths with the lowest cost alone; "balanced" among all, by how much each has in hand.
    """
    if len(with_room) == 1 or delivery.count == 1:
        (*_, path), room = min(with_room, key=_rank_of)
        return [(path, min(delivery.count, room))]
    best: dict[int, tuple[Candidate, int]] = {}
    for candidate, room in sorted(with_room, key=_rank_of):  # a neighbour may lead to several nodes
        best.setdefault(candidate[3].id, (candidate, room))
    if not delivery.is_balanced:
        lowest = min(candidate[0] for candidate, _ in best.values())
        best = {number: one for number, one in best.items() if one[0][0] == lowest}
    loads = [candidate[0] for candidate, _ in best.values()]
    rooms = [min(delivery.count, room) for _, room in best.values()]
    counts = shares(loads, rooms, delivery.count)
    return [(one[0][3], count) for one, count in zip(best.values(), counts, strict=True) if count]


def _rank_of(found: tuple[Candidate, int]) -> tuple[int, int, int, str, int]:
    return rank(found[0])

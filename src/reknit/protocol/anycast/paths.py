"""The paths that there are, and which of them an event may take: subscribers of this node, and its neighbours."""

from __future__ import annotations

from reknit.protocol.anycast.inputs import Attach
from reknit.protocol.anycast.state import Delivery, Path
from reknit.protocol.machine import Peer
from reknit.protocol.routing.routes import Routes
from reknit.topic_index import TopicIndex

Candidate = tuple[int, int, int, Path]
"""(how good, how far, how long ago, path), the best first by comparison."""


class Paths:
    """All paths of one node. A neighbour has `link_events` and `link_bytes` unsettled at most."""

    def __init__(self, routes: Routes, link_events: int, link_bytes: int) -> None:
        self._routes = routes
        self._link_events = link_events
        self._link_bytes = link_bytes
        self.subscribers: dict[Peer, Path] = {}
        self.neighbours: dict[str, Path] = {}
        self._index: TopicIndex[Path] = TopicIndex()
        self._ids = 0

    # -- they come and go

    def attach(self, message: Attach, key: Peer) -> None:
        """A subscriber is there."""
        assert key not in self.subscribers, "a path is attached once"
        self._ids += 1
        path = Path(self._ids, key, message.name, False, message.unit, message.pattern, message.credit)
        path.takes_streams = message.takes_streams
        self.subscribers[key] = path
        self._index.add(message.pattern, path)

    def detach(self, key: Peer) -> Path | None:
        """… and no more."""
        path = self.subscribers.pop(key, None)
        if path is not None and path.pattern is not None:
            self._index.remove(path.pattern, path)
        return path

    def link(self, name: str) -> None:
        """A neighbour is there."""
        assert name not in self.neighbours, "one link to a neighbour"
        self._ids += 1
        path = Path(self._ids, name, name, True, "unsettled", granted=self._link_events)
        path.bytes_max, path.takes_streams = self._link_bytes, True
        self.neighbours[name] = path

    def unlink(self, name: str) -> Path | None:
        """… and no more."""
        return self.neighbours.pop(name, None)

    # -- questions

    def of(self, peer: Peer) -> Path | None:
        """Of a subscriber, or of a neighbour by its name."""
        return self.subscribers.get(peer) or self.neighbours.get(str(peer))

    def all(self) -> list[Path]:
        """All that are alive."""
        return [*self.subscribers.values(), *self.neighbours.values()]

    def has_path(self, topic: str, is_stream: bool = False) -> bool:
        """Whether anyone is there who may take an event (or a stream), with or without room for it."""
        if any(path.takes_streams or not is_stream for path in self._index.match(topic)):
            return True
        ways = self._routes.ways()
        return any(
            node in ways and ways[node].first in self.neighbours
            for node in self._routes.destinations(topic, "stream" if is_stream else "any")
        )

    def candidates(self, delivery: Delivery) -> list[Candidate]:
        """Those that may take a delivery, with or without room for it."""
        is_closest = delivery.mode == "closest"
        found = [
            (0 if is_closest else path.unsettled, 0, path.last_used, path)
            for path in self._index.match(delivery.topic)
            if path.id not in delivery.excluded
        ]
        if not delivery.is_stream:
            nodes = self._routes.destinations(delivery.topic, "any")
        else:
            found = [candidate for candidate in found if candidate[3].takes_streams]
            nodes = self._routes.destinations(delivery.topic, "stream")
        ways = self._routes.ways(delivery.visited) if nodes else {}
        for node in nodes:
            way = ways.get(node)
            path = self.neighbours.get(way.first) if way is not None else None
            if way is not None and path is not None:
                value = way.cost if is_closest else path.unsettled + way.cost
                found.append((value, way.cost, path.last_used, path))
        return found

    def to_all(self, delivery: Delivery) -> list[Path]:
        """Every subscriber here, and every neighbour that leads to some."""
        here = self._routes.name
        nodes = [node for node in self._routes.destinations(delivery.topic, "any") if node != here]
        hops = [hop for hop in self._routes.children(delivery.origin, nodes) if hop not in delivery.visited]
        return [
            *self._index.match(delivery.topic),
            *(self.neighbours[hop] for hop in hops if hop in self.neighbours),
        ]


def rank(candidate: Candidate) -> tuple[int, int, int, str, int]:
    """Better, then nearer, then longer ago, then by name where nodes are concerned, then older."""
    value, cost, used, path = candidate
    return value, cost, used, path.name if path.is_neighbour else "", path.id

"""Routes between topics. A tunnel on a topic carries what is published there and on every topic with a way to it.

Nothing is copied: a route widens what a tunnel reads, from the route's own place in the journal on. So one
checkpoint is a place on all of a tunnel's topics, and what is kept once is delivered along any number of routes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

ROUTES_MAX: Final = 100_000
LANES_MAX: Final = 1_000
ROUTES_TOPIC: Final = "kn_routes"
JOURNAL_TOPIC: Final = "kn_journal"


class Route(msgspec.Struct, frozen=True):
    """From one topic to another, since a position; `since` is earlier where the route was to be populated."""

    id: str
    from_topic: str
    to_topic: str
    position: int
    since: int
    count: int = 0
    """Populate with at most the last so many; 0: without limit."""
    location: str = ""

    @property
    def uri(self) -> str:
        """What `kn_route_location` says of events that came along it."""
        return self.location or f"/{self.from_topic}/{ROUTES_TOPIC}/{self.id}"


class Lane(NamedTuple):
    """What a tunnel reads of one topic: everything from `position` on, marked with the location."""

    topic: str
    location: str
    position: int


def is_journal(topic: str) -> bool:
    """A client's journal gets an event once along each route; any other topic gets it once.

    >>> is_journal("who/anonymous/s/7/kn_journal")
    True
    """
    return topic.rpartition("/")[2] == JOURNAL_TOPIC


class Routes:
    """All routes of a node.

    >>> routes = Routes()
    >>> routes.put(Route("1", "what/chat", "who/ann/s/7/kn_journal", position=64, since=64))
    True
    >>> routes.lanes("who/ann/s/7/kn_journal")[1]
    Lane(topic='what/chat', location='/what/chat/kn_routes/1', position=64)
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Route] = {}
        self._into: dict[str, dict[tuple[str, str], Route]] = {}
        self._lanes: dict[str, tuple[Lane, ...]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, from_topic: str, id: str) -> Route | None:
        return self._by_key.get((from_topic, id))

    def all(self) -> list[Route]:
        return list(self._by_key.values())

    def put(self, route: Route) -> bool:
        """Add or update a route. False if the same was there: "Ignored route", with no repopulation."""
        key = (route.from_topic, route.id)
        old = self._by_key.get(key)
        if old is not None and old.to_topic == route.to_topic:
            return False
        if old is not None:
            self.remove(*key)
        self._by_key[key] = route
        self._into.setdefault(route.to_topic, {})[key] = route
        self._lanes.clear()
        return True

    def remove(self, from_topic: str, id: str) -> bool:
        """Delete a route; False if there was none."""
        route = self._by_key.pop((from_topic, id), None)
        if route is None:
            return False
        into = self._into[route.to_topic]
        del into[from_topic, id]
        if not into:
            del self._into[route.to_topic]
        self._lanes.clear()
        return True

    def lanes(self, topic: str) -> tuple[Lane, ...]:
        """What a tunnel on the topic reads: the topic itself, then along every way into it, each at most once."""
        found = self._lanes.get(topic)
        if found is None:
            found = self._lanes[topic] = tuple(self._ways(topic))
        return found

    def _ways(self, topic: str) -> list[Lane]:
        every_way = is_journal(topic)
        lanes = [Lane(topic, "", 0)]
        todo = [(route, route.uri, route.position) for route in self._into.get(topic, {}).values()]
        seen: set[tuple[str, str]] = {(topic, "")}
        while todo and len(lanes) < LANES_MAX:
            route, uri, position = todo.pop(0)
            position = max(position, route.position)
            key = (route.from_topic, uri if every_way else "")
            if key in seen or route.from_topic == topic:
                continue  # a loop, or a second way to where an event is squashed
            seen.add(key)
            lanes.append(Lane(route.from_topic, uri, position))
            todo += [(one, uri, position) for one in self._into.get(route.from_topic, {}).values()]
        return lanes

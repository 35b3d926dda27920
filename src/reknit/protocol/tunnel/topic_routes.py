"""Routes between topics. A tunnel on a topic carries the events of that topic, and of every topic with a route to it.

Nothing is copied: a route widens what a tunnel reads, from the route's own position in the journal on. So one
checkpoint is a place on all of a tunnel's topics, and an event is stored once and delivered along any number of routes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

ROUTES_MAX: Final = 100_000
ROUTED_TOPICS_MAX: Final = 1_000
ROUTES_TOPIC: Final = "kn_routes"
JOURNAL_TOPIC: Final = "kn_journal"


class TopicRoute(msgspec.Struct, frozen=True):
    """A route from one topic to another, since a position; `since` is earlier if the route is populated."""

    id: str
    from_topic: str
    to_topic: str
    position: int
    since: int
    count: int = 0
    """Populate the route with at most this many of the last events; 0 means no limit."""
    location: str = ""
    maker: str = ""
    """The identity that made it, and that needs the right to it; empty for one of a version that did not store it."""

    @property
    def uri(self) -> str:
        """The `kn_route_location` of events that came along it."""
        return self.location or f"/{self.from_topic}/{ROUTES_TOPIC}/{self.id}"


class RoutedTopic(NamedTuple):
    """A topic that a tunnel reads: everything from `position` on, marked with the location."""

    topic: str
    location: str
    position: int


def is_routes(topic: str) -> bool:
    """Whether events on a topic are routes, which are made by requests that are checked.

    >>> is_routes("what/chat/kn_routes")
    True
    """
    return topic.rpartition("/")[2] == ROUTES_TOPIC


def is_journal(topic: str) -> bool:
    """Whether a topic is a client's journal. It gets an event once along each route; any other topic gets it once.

    >>> is_journal("who/anonymous/s/7/kn_journal")
    True
    """
    return topic.rpartition("/")[2] == JOURNAL_TOPIC


class TopicRoutes:
    """All routes of a node.

    >>> routes = TopicRoutes()
    >>> routes.put(TopicRoute("1", "what/chat", "who/ann/s/7/kn_journal", position=64, since=64))
    True
    >>> routes.routed_topics("who/ann/s/7/kn_journal")[1]
    RoutedTopic(topic='what/chat', location='/what/chat/kn_routes/1', position=64)
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], TopicRoute] = {}
        self._into: dict[str, dict[tuple[str, str], TopicRoute]] = {}
        self._routed_topics: dict[str, tuple[RoutedTopic, ...]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, from_topic: str, id: str) -> TopicRoute | None:
        return self._by_key.get((from_topic, id))

    def all(self) -> list[TopicRoute]:
        return list(self._by_key.values())

    def put(self, route: TopicRoute) -> bool:
        """Add or update a route. False if the same was there: "Ignored route", with no repopulation."""
        key = (route.from_topic, route.id)
        old = self._by_key.get(key)
        if old is not None and old.to_topic == route.to_topic:
            return False
        if old is not None:
            self.remove(*key)
        self._by_key[key] = route
        self._into.setdefault(route.to_topic, {})[key] = route
        self._routed_topics.clear()
        return True

    def remove(self, from_topic: str, id: str) -> bool:
        """Delete a route. False if there was no such route."""
        route = self._by_key.pop((from_topic, id), None)
        if route is None:
            return False
        into = self._into[route.to_topic]
        del into[from_topic, id]
        if not into:
            del self._into[route.to_topic]
        self._routed_topics.clear()
        return True

    def routed_topics(self, topic: str) -> tuple[RoutedTopic, ...]:
        """The topics that a tunnel on this topic reads: itself, and those with a route into it, each at most once."""
        found = self._routed_topics.get(topic)
        if found is None:
            found = self._routed_topics[topic] = tuple(self._ways(topic))
        return found

    def _ways(self, topic: str) -> list[RoutedTopic]:
        every_way = is_journal(topic)
        found = [RoutedTopic(topic, "", 0)]
        todo = [(route, route.uri, route.position) for route in self._into.get(topic, {}).values()]
        seen: set[tuple[str, str]] = {(topic, "")}
        while todo and len(found) < ROUTED_TOPICS_MAX:
            route, uri, position = todo.pop(0)
            position = max(position, route.position)
            key = (route.from_topic, uri if every_way else "")
            if key in seen or route.from_topic == topic:
                continue  # a loop, or a second route to a topic that gets an event once
            seen.add(key)
            found.append(RoutedTopic(route.from_topic, uri, position))
            todo += [(one, uri, position) for one in self._into.get(route.from_topic, {}).values()]
        return found

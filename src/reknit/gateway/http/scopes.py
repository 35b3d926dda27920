"""Scopes: which events a tunnel carries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from reknit.protocol.tunnel.topic_routes import TopicRoutes
from reknit.topic import Pattern


def _is_readable(readable: tuple[Pattern, ...] | None, topic: str) -> bool:
    return readable is None or any(one.matches(topic) for one in readable)


def _is_same_view(
    patterns: Iterable[Pattern], before: tuple[Pattern, ...] | None, now: tuple[Pattern, ...] | None
) -> bool:
    """Whether somebody sees the same of these topics as before, now that they may read others."""
    return all(_view(one, before) == _view(one, now) for one in patterns)


def _view(pattern: Pattern, readable: tuple[Pattern, ...] | None) -> frozenset[Pattern] | None:
    """What may be read of a pattern; None for all of it."""
    if readable is None or any(one.includes(pattern) for one in readable):
        return None
    return frozenset(one for one in readable if one.intersects(pattern))


class TunnelScope(Protocol):
    """The events of a tunnel. Scopes with equal keys carry the same events."""

    @property
    def key(self) -> Hashable: ...

    def patterns(self) -> Iterable[Pattern]:
        """Patterns that cover at least all topics of the scope."""

    def locations(self, topic: str, position: int) -> tuple[str, ...]:
        """The locations by which a batch reaches the tunnel: none, one, or one for each route."""

    def matches(self, topic: str) -> bool:
        """Whether an event on the topic may reach the tunnel."""

    def is_same(self, readable: tuple[Pattern, ...] | None) -> bool:
        """Whether the tunnel carries the same events for a user who may read these topics now."""


class PatternScope:
    """The topics that match a pattern, as far as the user may read them."""

    def __init__(self, pattern: Pattern, readable: tuple[Pattern, ...] | None) -> None:
        self._pattern = pattern
        self._readable = readable
        self.key: Hashable = (pattern, readable)

    def patterns(self) -> Iterable[Pattern]:
        return (self._pattern,)

    def is_same(self, readable: tuple[Pattern, ...] | None) -> bool:
        return _is_same_view(self.patterns(), self._readable, readable)

    def matches(self, topic: str) -> bool:
        return self._pattern.matches(topic) and _is_readable(self._readable, topic)

    def locations(self, topic: str, position: int) -> tuple[str, ...]:
        return ("",) if self.matches(topic) else ()


class TopicScope:
    """One topic and the topics routed to it, as far as the user may read them."""

    def __init__(self, topic: str, routes: TopicRoutes, readable: tuple[Pattern, ...] | None) -> None:
        self.topic = topic
        self._routes = routes
        self._readable = readable
        self.key: Hashable = (topic, readable)

    def patterns(self) -> Iterable[Pattern]:
        return dict.fromkeys(Pattern(lane.topic) for lane in self._routes.routed_topics(self.topic))

    def is_same(self, readable: tuple[Pattern, ...] | None) -> bool:
        return _is_same_view((Pattern(self.topic), *self.patterns()), self._readable, readable)

    def matches(self, topic: str) -> bool:
        lanes = self._routes.routed_topics(self.topic)
        return any(lane.topic == topic for lane in lanes) and _is_readable(self._readable, topic)

    def locations(self, topic: str, position: int) -> tuple[str, ...]:
        lanes = self._routes.routed_topics(self.topic)
        if len(lanes) == 1:
            found: tuple[str, ...] = ("",) if topic == self.topic else ()
        else:
            found = tuple(
                lane.location for lane in lanes if lane.topic == topic and position >= lane.position
            )
        return found if found and _is_readable(self._readable, topic) else ()

"""`…/kn_subtopics`: the names under a topic, and new names as they appear."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from reknit import environment
from reknit.gateway.http.feed import TunnelFeed
from reknit.gateway.http.formats import TunnelFormat
from reknit.gateway.http.kn.topics import SUBTOPICS, children
from reknit.gateway.http.scopes import TunnelScope
from reknit.protocol.tunnel.elements import ID, ROUTED_FROM, TIME
from reknit.store.journal import Journal
from reknit.topic import Pattern


class SubtopicsScope:
    """The names under one topic. No batch of the journal is part of it: `Subtopics` makes its events."""

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self.key: Hashable = ("kn_subtopics", parent)

    def patterns(self) -> Iterable[Pattern]:
        return ()

    def is_same(self, readable: tuple[Pattern, ...] | None) -> bool:
        topic = f"{self.parent}/{SUBTOPICS}".removeprefix("/")
        return readable is None or any(one.matches(topic) for one in readable)

    def matches(self, topic: str) -> bool:
        return False

    def locations(self, topic: str, position: int) -> tuple[str, ...]:
        return ()


class Subtopics:
    """Sends names to tunnels on `kn_subtopics`: those that exist, then each new one."""

    def __init__(self, journal: Journal, feed: TunnelFeed) -> None:
        self._journal = journal
        self._feed = feed
        self._sent: dict[str, set[str]] = {}
        """The names that tunnels were sent, by parent topic."""
        feed.follow_topics(self._on_topic)

    def population(self, scope: TunnelScope, format: TunnelFormat) -> bytes:
        """Events with the names that exist; nothing for other scopes."""
        if not isinstance(scope, SubtopicsScope):
            return b""
        names = children(scope.parent, self._journal.topics())
        self._sent[scope.parent] = set(names)
        return b"".join(_event(format, scope.parent, name) for name in names)

    def _on_topic(self, topic: str) -> None:
        segments = topic.split("/")
        for depth, name in enumerate(segments):
            parent = "/".join(segments[:depth])
            sent = self._sent.get(parent)
            if sent is None or name in sent:
                continue
            sent.add(name)
            for group in self._feed.groups.all():
                if isinstance(group.scope, SubtopicsScope) and group.scope.parent == parent:
                    self._feed.write_live(group, _event(group.format, parent, name), 0.0)


def _event(format: TunnelFormat, parent: str, name: str) -> bytes:
    elements = {ID: name, TIME: f"{environment.time_us() / 1e6:.0f}", ROUTED_FROM: f"/{parent}/kn_subtopics"}
    return format.status(elements, name)

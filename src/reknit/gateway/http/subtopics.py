"""`…/kn_subtopics`: the names under a topic, and new ones as they appear."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from time import time

from reknit.gateway.http.feed import Feed
from reknit.gateway.http.formats import Format
from reknit.gateway.http.scope import Scope
from reknit.gateway.http.topics import children
from reknit.protocol.tunnel.elements import ID, ROUTED_FROM, TIME
from reknit.store.journal import Journal
from reknit.topic import Pattern


class SubtopicsScope:
    """The names under one topic. No batch is part of it: what it carries is made up here."""

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self.key: Hashable = ("kn_subtopics", parent)

    def patterns(self) -> Iterable[Pattern]:
        return ()

    def matches(self, topic: str) -> bool:
        return False

    def locations(self, topic: str, position: int) -> tuple[str, ...]:
        return ()


class Subtopics:
    """Tells tunnels on `kn_subtopics` of names: those that are there, then each new one."""

    def __init__(self, journal: Journal, feed: Feed) -> None:
        self._journal = journal
        self._feed = feed
        self._told: dict[str, set[str]] = {}
        feed.on_topic = self._on_topic

    def population(self, scope: Scope, format: Format) -> bytes:
        """The names that are there."""
        if not isinstance(scope, SubtopicsScope):
            return b""
        names = children(scope.parent, self._journal.topics())
        self._told[scope.parent] = set(names)
        return b"".join(_event(format, scope.parent, name) for name in names)

    def _on_topic(self, topic: str) -> None:
        segments = topic.split("/")
        for depth, name in enumerate(segments):
            parent = "/".join(segments[:depth])
            told = self._told.get(parent)
            if told is None or name in told:
                continue
            told.add(name)
            for group in self._feed.groups():
                if isinstance(group.scope, SubtopicsScope) and group.scope.parent == parent:
                    self._feed.write_live(group, _event(group.format, parent, name), 0.0)


def _event(format: Format, parent: str, name: str) -> bytes:
    elements = {ID: name, TIME: f"{time():.0f}", ROUTED_FROM: f"/{parent}/kn_subtopics"}
    return format.status(elements, name)

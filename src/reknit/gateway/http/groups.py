"""Tunnels of one format and scope form a group: they are sent the same bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable

from reknit.gateway.http.formats import TunnelFormat
from reknit.gateway.http.scopes import TunnelScope
from reknit.topic import Pattern
from reknit.topic_index import TopicIndex


class TunnelConnection(ABC):
    """The connection of a tunnel. The tunnel machine knows the tunnel by this object."""

    __slots__ = ()

    address: str
    """The client's."""

    @abstractmethod
    def write(self, data: bytes, size: int = 0) -> None:
        """Send. Bytes that do not fit the socket are buffered. `size` is theirs at the client, after unpacking."""

    @abstractmethod
    def end(self, why: str) -> None:
        """Send the reason, and close."""


class TunnelGroup:
    """The tunnels of one format and scope. `is_raw`: nothing frames the bytes, as the client speaks HTTP/1.0."""

    __slots__ = ("format", "is_raw", "key", "members", "scope", "written_at")

    def __init__(self, format: TunnelFormat, scope: TunnelScope, is_raw: bool) -> None:
        self.format = format
        self.scope = scope
        self.is_raw = is_raw or not format.is_chunked
        self.key: Hashable = (format.name, self.is_raw, scope.key)
        self.members = 0
        self.written_at = 0.0

    def frame(self, data: bytes) -> bytes:
        """The data as it is sent on a connection of this group."""
        return data if self.is_raw else chunk(data)


def chunk(data: bytes) -> bytes:
    """A chunk of HTTP's chunked coding.

    >>> chunk(b"hello")
    b'5\\r\\nhello\\r\\n'
    """
    return b"%x\r\n%b\r\n" % (len(data), data)


class TunnelGroups:
    """The groups that have a tunnel, indexed by topic. The callbacks get their patterns."""

    def __init__(
        self,
        on_added: Callable[[str], None] = lambda text: None,
        on_removed: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._on_added, self._on_removed = on_added, on_removed
        self._groups: dict[Hashable, TunnelGroup] = {}
        self._index: TopicIndex[TunnelGroup] = TopicIndex()
        self._indexed: dict[TunnelGroup, list[Pattern]] = {}

    def __getitem__(self, key: Hashable) -> TunnelGroup:
        return self._groups[key]

    def all(self) -> list[TunnelGroup]:
        return list(self._groups.values())

    def match(self, topic: str) -> Collection[TunnelGroup]:
        """The groups whose scope may contain the topic."""
        return self._index.match(topic)

    def find(self, format: TunnelFormat, scope: TunnelScope, is_raw: bool) -> TunnelGroup:
        """The group of a new tunnel; a new one if it is the first."""
        group = TunnelGroup(format, scope, is_raw)
        return self._groups.get(group.key) or group

    def join(self, group: TunnelGroup) -> None:
        """The group has one more tunnel."""
        group.members += 1
        if group.members == 1:
            self._groups[group.key] = group
            self._add(group)

    def leave(self, group: TunnelGroup) -> None:
        """The group has one tunnel less. A group without tunnels is forgotten."""
        group.members -= 1
        if not group.members:
            del self._groups[group.key]
            self._remove(group)

    def update(self) -> None:
        """Index the groups again whose scope covers other topics now."""
        for group in self.all():
            if set(group.scope.patterns()) != set(self._indexed[group]):
                self._remove(group)
                self._add(group)

    def _add(self, group: TunnelGroup) -> None:
        self._indexed[group] = list(group.scope.patterns())
        for pattern in self._indexed[group]:
            self._index.add(pattern, group)
            self._on_added(pattern.text)

    def _remove(self, group: TunnelGroup) -> None:
        for pattern in self._indexed.pop(group):
            self._index.remove(pattern, group)
            self._on_removed(pattern.text)

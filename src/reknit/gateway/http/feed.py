"""One reader of the journal for all tunnels: each batch is encoded once per format, and everyone gets those bytes.

Who is behind reads the journal too, in turns; what several of them need, as after a restart, is read and encoded
once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from time import time_ns
from typing import Final, cast

from reknit.batch import Batch
from reknit.entries import Entry, Run
from reknit.errors import Gone
from reknit.gateway.http.formats import Format, Parcel
from reknit.gateway.http.scope import Scope
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.server import (
    CloseTunnel,
    Effect,
    LiveEdgeMoved,
    ReadJournal,
    RefuseTunnel,
    ServedTunnelState,
    TunnelCaughtUp,
    TunnelOpened,
    TunnelServer,
)
from reknit.protocol.tunnel.topic_routes import ROUTES_TOPIC
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.topic_index import TopicIndex

READ_BYTES: Final = 128 << 10
"""How much of the journal one step of a tunnel that is behind takes."""
SCAN_BYTES: Final = 4 << 20
"""How much is looked through for it when nothing in there is for it."""
TURN_S: Final = 0.005
"""How long tunnels that are behind may keep the loop at a time."""
CACHE_BYTES_MAX: Final = 16 << 20


class Sink(ABC):
    """A tunnel's connection, which is also what the machine knows it by."""

    __slots__ = ()

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send; what does not fit the socket is buffered."""

    @abstractmethod
    def end(self, why: str) -> None:
        """Say why, and close."""


class Group:
    """The tunnels of one format and scope."""

    __slots__ = ("format", "is_raw", "key", "members", "scope", "written_at")

    def __init__(self, format: Format, scope: Scope, is_raw: bool) -> None:
        self.format = format
        self.scope = scope
        self.is_raw = is_raw or not format.is_chunked
        self.key: Hashable = (format.name, self.is_raw, scope.key)
        self.members = 0
        self.written_at = 0.0

    def frame(self, data: bytes) -> bytes:
        """As it goes onto the connection."""
        return data if self.is_raw else chunk(data)


def chunk(data: bytes) -> bytes:
    """A chunk of HTTP's chunked coding.

    >>> chunk(b"hello")
    b'5\\r\\nhello\\r\\n'
    """
    return b"%x\r\n%b\r\n" % (len(data), data)


class Feed:
    """Reads the journal, writes to tunnels. `grown` is called when more of it is kept."""

    def __init__(self, journal: Journal, epoch: str, server: TunnelServer) -> None:
        self.epoch = epoch
        self._journal = journal
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._groups: dict[Hashable, Group] = {}
        self._index: TopicIndex[Group] = TopicIndex()
        self._indexed: dict[Group, list[Pattern]] = {}
        self._behind: deque[Peer] = deque()
        self._is_serving = False
        self._cache: OrderedDict[tuple[Hashable, JournalPlace], tuple[bytes, JournalPlace]] = OrderedDict()
        self._cache_bytes = 0
        self.on_routes: Callable[[Entry, Batch], None] = lambda entry, batch: None
        """Told of every batch on a topic of routes, before anyone is sent it."""
        self.populations: Callable[[Entry, Group], Iterable[Parcel]] = lambda entry, group: ()
        """What a group gets because of the routes in such a batch."""
        self.on_topic: Callable[[str], None] = lambda topic: None
        """Told of every topic when its first event is kept."""
        self._topics = set(journal.topics())
        self.encoded = 0
        """Batches that were encoded, once for each format and location."""

    @property
    def position(self) -> int:
        """The live edge."""
        return self._server.position

    def groups(self) -> list[Group]:
        """The groups that have a tunnel."""
        return list(self._groups.values())

    # -- tunnels

    def open(
        self, sink: Sink, format: Format, scope: Scope, is_raw: bool, request: TunnelOpened
    ) -> Group | None:
        """Put a tunnel to its group. None if that was refused: it was told."""
        group = Group(format, scope, is_raw)
        group = self._groups.get(group.key) or group
        request = TunnelOpened(group.key, request.address, request.place, request.journal)
        self._server.receive(request, sink, self._loop.time())
        if self._server.tunnel(sink) is None:
            self.perform()
            return None
        group.members += 1
        if group.members == 1:
            self._groups[group.key] = group
            self._add(group)
        self.perform()
        return group

    def release(self, group: Group) -> None:
        """A tunnel of the group is gone."""
        group.members -= 1
        if not group.members:
            del self._groups[group.key]
            self._remove(group)

    def _add(self, group: Group) -> None:
        patterns = list(group.scope.patterns())
        self._indexed[group] = patterns
        for pattern in patterns:
            self._index.add(pattern, group)

    def _remove(self, group: Group) -> None:
        for pattern in self._indexed.pop(group):
            self._index.remove(pattern, group)

    def routes_changed(self) -> None:
        """What scopes carry may be different now."""
        self._cache.clear()
        self._cache_bytes = 0
        for group in self._groups.values():
            if set(group.scope.patterns()) != set(self._indexed[group]):
                self._remove(group)
                self._add(group)

    def perform(self) -> None:
        """Do what the machine wants."""
        for effect in self._server.take_effects():
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case ReadJournal(peer=peer):
                self._behind.append(peer)
                if not self._is_serving:
                    self._is_serving = True
                    self._loop.call_soon(self._serve)
            case CloseTunnel(peer=peer, why=why) | RefuseTunnel(peer=peer, why=why):
                cast(Sink, peer).end(why)

    # -- the live edge

    def grown(self) -> None:
        """The journal holds more: encode it once for each group, and write the same bytes to everyone in it."""
        end, position = self._journal.end, self._server.position
        if end <= position:
            return
        pending: dict[Group, list[bytes]] = {}
        while position < end:
            run = self._journal.read(position, end)
            for at, entry in enumerate(run.entries):
                self._gather(run, at, entry, pending)
            position = run.next_position
        now = self._loop.time()
        self._server.receive(LiveEdgeMoved(end), JOURNAL, now)
        for group, parts in pending.items():
            self.write_live(group, b"".join(parts), now)
        self.perform()

    def _gather(self, run: Run, at: int, entry: Entry, pending: dict[Group, list[bytes]]) -> None:
        topic = entry.head.topic
        if topic not in self._topics:
            self._topics.add(topic)
            self.on_topic(topic)
        is_route = topic.endswith(ROUTES_TOPIC)
        if is_route:
            self.on_routes(entry, Batch(entry.head, run.cut(at, at + 1)))
        groups = self._index.match(topic)
        if is_route:
            for group in self._groups.values():
                self._populate(entry, group, pending.setdefault(group, []))
        if not groups:
            return
        made: dict[tuple[str, str], bytes] = {}
        batch = Batch(entry.head, run.cut(at, at + 1))
        for group in groups:
            for location in group.scope.locations(topic, entry.position):
                key = (group.format.name, location)
                data = made.get(key)
                if data is None:
                    self.encoded += 1
                    parcel = Parcel(batch, self.epoch, entry.position, 0, location)
                    data = made[key] = group.format.batch(parcel)
                pending.setdefault(group, []).append(data)

    def _populate(self, entry: Entry, group: Group, parts: list[bytes]) -> None:
        parts += [group.format.batch(parcel) for parcel in self.populations(entry, group)]

    def write_live(self, group: Group, data: bytes, now: float) -> None:
        """The same bytes to everyone at the live edge of a group."""
        if not data:
            return
        group.written_at = now
        framed = group.frame(data)
        for sink in cast(list[Sink], list(self._server.live(group.key))):
            sink.write(framed)

    def heartbeat(self, quiet_s: float) -> None:
        """A sign of life to the tunnels of quiet groups."""
        now = self._loop.time()
        place = JournalPlace(self.epoch, self._server.position)
        for group in list(self._groups.values()):
            if now - group.written_at >= quiet_s:
                self.write_live(group, group.format.heartbeat(place), now)

    # -- behind

    def _serve(self) -> None:
        """Give those that are behind a piece each, for a while; then let the loop come round."""
        self._is_serving = False
        until = self._loop.time() + TURN_S
        while self._behind:
            self._serve_one(self._behind.popleft())
            if self._loop.time() > until and self._behind:
                self._is_serving = True
                self._loop.call_soon(self._serve)
                return

    def _serve_one(self, peer: Peer) -> None:
        tunnel = self._server.tunnel(peer)
        if tunnel is None or tunnel.state is not ServedTunnelState.BEHIND:
            return
        group = self._groups[tunnel.group]
        try:
            data, place = self._replayed(group, tunnel.place)
        except Gone:
            self._server.lose(peer, "lost: retention removed what it has not taken yet")
        else:
            self._server.receive(TunnelCaughtUp(place), peer, self._loop.time())
            if data:
                cast(Sink, peer).write(group.frame(data))
        self.perform()

    def _replayed(self, group: Group, place: JournalPlace) -> tuple[bytes, JournalPlace]:
        """What a group's tunnel gets next behind a place, and the place after that."""
        key = (group.key, place)
        found = self._cache.get(key)
        if found is None:
            found = self._replay(group, place)
            self._cache[key] = found
            self._cache_bytes += len(found[0])
            while self._cache_bytes > CACHE_BYTES_MAX and len(self._cache) > 1:
                self._cache_bytes -= len(self._cache.popitem(last=False)[1][0])
        return found

    def _replay(self, group: Group, place: JournalPlace) -> tuple[bytes, JournalPlace]:
        position, skip = place.position, place.index
        edge = self._server.position
        parts: list[bytes] = []
        scanned_to = position + SCAN_BYTES
        while position < min(edge, scanned_to) and not parts:
            run = self._journal.read(position, edge, READ_BYTES)
            for at, entry in enumerate(run.entries):
                parts += self._replayed_parts(group, run, at, entry, skip)
                skip = 0
            position = run.next_position
        return b"".join(parts), JournalPlace(self.epoch, min(position, edge))

    def _replayed_parts(self, group: Group, run: Run, at: int, entry: Entry, skip: int) -> list[bytes]:
        parts: list[bytes] = []
        if entry.head.topic.endswith(ROUTES_TOPIC):
            self._populate(entry, group, parts)
        if not is_expired(entry):
            for location in group.scope.locations(entry.head.topic, entry.position):
                batch = Batch(entry.head, run.cut(at, at + 1))
                self.encoded += 1
                parts.append(group.format.batch(Parcel(batch, self.epoch, entry.position, skip, location)))
        return parts


def is_expired(entry: Entry) -> bool:
    """Whether its time to live is over: such a batch is not worth replaying."""
    head = entry.head
    return bool(head.ttl_ms) and head.time_us + head.ttl_ms * 1000 < time_ns() // 1000

"""One reader of the journal for all tunnels: each batch is encoded once per format and sent to every tunnel.

Tunnels that are behind read the journal too, in turns (`replay.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, cast

from reknit.batch import Batch
from reknit.entries import Entry, Removed, Run
from reknit.errors import Gone
from reknit.gateway.http.formats import TunnelBatch, TunnelFormat
from reknit.gateway.http.groups import TunnelConnection, TunnelGroup, TunnelGroups
from reknit.gateway.http.replay import JournalReplay
from reknit.gateway.http.scopes import TunnelScope
from reknit.node.core.journal_tail import JournalTail
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

log = logging.getLogger("reknit.http")

TURN_S: Final = 0.005
"""How long tunnels that are behind may occupy the event loop at a time."""


class RouteListener(Protocol):
    """Follows the batches on topics of routes."""

    def on_routes(self, entry: Entry, batch: Batch) -> None:
        """A batch of routes is in the journal. No tunnel was sent it yet."""

    def populations(self, entry: Entry, group: TunnelGroup) -> Iterable[TunnelBatch]:
        """The events that a group gets because of the routes in such a batch."""


class Followed(Protocol):
    """The topics that linked nodes send here because somebody reads them."""

    def follow(self, pattern: str, position: int) -> None:
        """One more reader; the journal's live edge is at this position."""

    def leave(self, pattern: str, now: float) -> None:
        """One reader less."""


class TunnelFeed:
    """Reads the journal and writes to tunnels. Call `grown` when the journal holds more."""

    def __init__(
        self, journal: Journal, tail: JournalTail, epoch: str, server: TunnelServer, followed: Followed
    ) -> None:
        self.epoch = epoch
        self.groups = TunnelGroups(
            lambda pattern: followed.follow(pattern, server.position),
            lambda pattern: followed.leave(pattern, self._loop.time()),
        )
        self._tail = tail
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._replay = JournalReplay(journal, epoch, self._populate, self._lose)
        self._lost: set[Removed] = set()
        """Damaged events that tunnels were closed for."""
        self._behind: deque[Peer] = deque()
        self._is_serving = False
        self._routes: RouteListener | None = None
        self._on_topic: Callable[[str], None] = lambda topic: None
        self._topics = set(journal.topics())
        self._encoded_live = 0

    def follow_routes(self, listener: RouteListener) -> None:
        """Tell the listener of every batch of routes."""
        self._routes = listener

    def follow_topics(self, on_topic: Callable[[str], None]) -> None:
        """Call `on_topic` with every topic when its first event is in the journal."""
        self._on_topic = on_topic

    @property
    def encoded(self) -> int:
        """How many batches were encoded, once for each format and location."""
        return self._encoded_live + self._replay.encoded

    @property
    def position(self) -> int:
        """The live edge."""
        return self._server.position

    # -- tunnels

    def open(
        self,
        connection: TunnelConnection,
        format: TunnelFormat,
        scope: TunnelScope,
        is_raw: bool,
        request: TunnelOpened,
    ) -> TunnelGroup | None:
        """Add a tunnel to its group. None if the machine refused it: the client was told."""
        group = self.groups.find(format, scope, is_raw)
        request = TunnelOpened(group.key, request.address, request.place, request.journal)
        self._server.receive(request, connection, self._loop.time())
        if self._server.tunnel(connection) is None:
            self.perform()
            return None
        self.groups.join(group)
        self.perform()
        return group

    def release(self, group: TunnelGroup) -> None:
        """A tunnel of the group is gone."""
        self.groups.leave(group)

    def routes_changed(self) -> None:
        """Scopes may cover other topics now."""
        self._replay.forget()
        self.groups.update()

    def perform(self) -> None:
        """Perform the effects of the tunnel machine."""
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
                connection = cast(TunnelConnection, peer)
                log.warning("a tunnel of %s is closed: %s", connection.address, why)
                connection.end(why)

    # -- the live edge

    def grown(self) -> None:
        """The journal holds more: encode it once for each group, and write the same bytes to all its tunnels."""
        end, position = self._tail.end, self._server.position
        if end <= position:
            return
        pending: dict[TunnelGroup, list[bytes]] = {}
        while position < end:
            run = self._tail.read(position)
            if run.lost:
                self._lose(position, run.lost)
            for at, entry in enumerate(run.entries):
                self._gather(run, at, entry, pending)
            position = run.next_position
        now = self._loop.time()
        self._server.receive(LiveEdgeMoved(end), JOURNAL, now)
        for group, parts in pending.items():
            self.write_live(group, b"".join(parts), now)
        self.perform()

    def _gather(self, run: Run, at: int, entry: Entry, pending: dict[TunnelGroup, list[bytes]]) -> None:
        topic = entry.head.topic
        if topic not in self._topics:
            self._topics.add(topic)
            self._on_topic(topic)
        is_route = topic.endswith(ROUTES_TOPIC)
        if is_route and self._routes is not None:
            self._routes.on_routes(entry, Batch(entry.head, run.cut(at, at + 1)))
        groups = self.groups.match(topic)
        if is_route:
            for group in self.groups.all():
                pending.setdefault(group, []).extend(self._populate(entry, group))
        if not groups:
            return
        made: dict[tuple[str, str], bytes] = {}
        batch = Batch(entry.head, run.cut(at, at + 1))
        for group in groups:
            for location in group.scope.locations(topic, entry.position):
                key = (group.format.name, location)
                data = made.get(key)
                if data is None:
                    self._encoded_live += 1
                    item = TunnelBatch(batch, self.epoch, entry.position, 0, location)
                    data = made[key] = group.format.batch(item)
                pending.setdefault(group, []).append(data)

    def _populate(self, entry: Entry, group: TunnelGroup) -> list[bytes]:
        if self._routes is None:
            return []
        return [group.format.batch(item) for item in self._routes.populations(entry, group)]

    def write_live(self, group: TunnelGroup, data: bytes, now: float) -> None:
        """Write the same bytes to every tunnel at the live edge of a group."""
        if not data:
            return
        group.written_at = now
        framed = group.frame(group.format.pack(data))
        for connection in cast(list[TunnelConnection], list(self._server.live(group.key))):
            try:
                connection.write(framed, len(data))
            except Exception:  # the others get theirs: nobody would bring it to them later
                log.exception("internal error: the tunnel of %s is closed", connection.address)
                self._server.lose(connection, "internal error: the node's log says more")

    def heartbeat(self, quiet_s: float) -> None:
        """Send a heartbeat to the tunnels of groups that have been quiet for this long."""
        now = self._loop.time()
        place = JournalPlace(self.epoch, self._server.position)
        for group in self.groups.all():
            if now - group.written_at >= quiet_s:
                self.write_live(group, group.format.heartbeat(place), now)

    # -- behind

    def _serve(self) -> None:
        """Send one part to each tunnel that is behind, for `TURN_S` at most; then yield to the event loop."""
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
        group = self.groups[tunnel.group]
        try:
            data, size, place = self._replay.next(group, tunnel.place, self._server.position)
        except Gone:
            self._server.lose(peer, "lost: retention removed events that this client has not received yet")
        else:
            if self._server.tunnel(peer) is None:  # it could not be promised what follows
                self.perform()
                return
            self._server.receive(TunnelCaughtUp(place), peer, self._loop.time())
            if not data and tunnel.state is ServedTunnelState.BEHIND:
                data = group.format.heartbeat(place)  # a long search must not look like a dead connection
            if data:
                cast(TunnelConnection, peer).write(group.frame(data), size)
        self.perform()

    def _lose(self, position: int, lost: Sequence[Removed]) -> None:
        """Close the tunnels that have still to get damaged events, once: they are opened again without that promise."""
        fresh = set(lost) - self._lost
        self._lost |= fresh
        if fresh:
            self._server.lose_at(
                position,
                lambda group: any(self.groups[group].scope.matches(gone.topic) for gone in fresh),
                "lost: events that this client has not received yet are damaged in the journal",
            )

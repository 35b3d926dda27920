"""Bridges: events of one authority go to another, for good and in one direction, by routes that are added and deleted.

A route reads at one node as a durable subscriber of its own name and publishes at another one, with every event's
source and seq. The first node's journal is the queue: an event is accepted there once it is durable at the other, so
nothing is lost while either is away. Where a source has been is told along with it, so that nothing goes round.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.batch import Batch
from reknit.client.cache import FarCache
from reknit.client.link import Link
from reknit.client.session import Session
from reknit.errors import InvalidTopic, LocalError, Refused, ReknitError
from reknit.node.feed import Feed
from reknit.node.notes import Notes
from reknit.node.relay import RETRY_S, Relay
from reknit.node.skips import TEXT
from reknit.node.vias import Vias
from reknit.outcome import Code
from reknit.protocol.link_messages import Skip, Via
from reknit.protocol.messages import Welcome
from reknit.topic import Pattern, check_topic
from reknit.transport import memory
from reknit.transport.tcp import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from reknit.node.feed import OnGap
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

HERE: Final = "here"
FILE: Final = "routes.json"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_topic(text: str) -> bool:
    """Whether it is one.

    >>> is_topic("plant/temp"), is_topic("plant//temp")
    (True, False)
    """
    try:
        check_topic(text)
    except InvalidTopic:
        return False
    return True


class Route(msgspec.Struct, frozen=True, order=True):
    """From one authority to another: `here`, or the address of a node."""

    source: str
    target: str
    pattern: str = "**"

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target} ({self.pattern})"


class Kept(msgspec.Struct):
    """What outlasts a restart."""

    routes: list[Route] = []
    vias: dict[str, list[str]] = {}


class Outlet(Feed):
    """A feed into this node or another one, which may be away: what is not kept there is sent again."""

    def __init__(
        self, node: Node, name: str, url: str, on_kept: Callable[[Batch], None], on_gap: OnGap
    ) -> None:
        super().__init__(node, name, on_kept, on_gap)
        self._is_here = url == HERE
        self.target = ""
        """The other node's name, while it is there."""
        self.vias: dict[bytes, list[str]] = {}
        """Where each source has been, with the node at which it is read."""
        if not self._is_here:
            self._url = url
            self._link = Link(url, name, self, node.config)

    async def open(self) -> None:
        """Connect; a node that is away is waited for."""
        if self._is_here:
            await super().open()
            self.target = self._node.name
        else:
            await self._link.open(float("inf"))

    def tell_via(self, source: bytes, nodes: list[str]) -> None:
        """Say where a source has been, before its events."""
        if self.vias.get(source) != nodes:
            self.vias[source] = nodes
            self._link.send(Via(source, nodes))

    def fill(self, batch: Batch, seq: int, found: list[Batch], text: str = TEXT) -> int:
        """As a feed does it; the other node is told what is lost, and books it."""
        if self._is_here:
            return super().fill(batch, seq, found, text)
        first = found[0].first if found else batch.first
        if first > seq:
            self._link.send(Skip(batch.topic, batch.source, seq, first, text))
        if found:
            self.put_before(found)
        else:
            self._link.send_buffers([one.data for one in self._unacked.get(batch.source, ())])
        return max(first - seq, 0)

    def linked(self, welcome: Welcome) -> None:
        self.target = welcome.node
        self._link.send(*(Via(source, nodes) for source, nodes in self.vias.items()))
        self._drop_what_has_been_there()
        self._go()

    def _drop_what_has_been_there(self) -> None:
        """While the other node was away, it was not known which one it is."""

        def accept(batch: Batch) -> None:
            batch.accept()

        for source in [source for source in self._unacked if self.target in self.vias.get(source, ())]:
            self._drop(source, self._unacked[source][-1].stop, accept)

    def unlinked(self) -> None:
        self.target = ""


class Bridge(Relay):
    """One route, while it is there."""

    def __init__(self, bridges: Bridges, route: Route) -> None:
        node = bridges.node
        self.route = route
        self.problem = ""
        self.events = 0
        """So many events are kept at the other end."""
        self._bridges = bridges
        self._node = node
        self.pattern = Pattern(route.pattern)
        self._name = f"route/{node.name}/{route.target}/{route.pattern}"
        self.url = route.source if route.source != HERE else f"memory://{id(self):x}/route"
        self._stop_listening: Callable[[], None] | None = None
        self._feed = self._outlet = Outlet(node, self._name, route.target, self._kept, self._gap)
        self._far = FarCache(self.url, self._name, node.config)
        self._gaps: dict[int, tuple[Batch, int, list[Batch]]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._has_begun = asyncio.Event()

    def begin(self) -> None:
        """Begin; either end may come later."""
        if self.route.source == HERE:
            self._stop_listening = memory.listen(self.url, self._node)
        self._task = asyncio.create_task(self._run())

    async def begun(self) -> None:
        """Return when what is published at the source from now on is owed to the target, or `problem` tells why not."""
        await self._has_begun.wait()

    async def stop(self) -> None:
        self._has_begun.set()
        await super().stop()
        if self._stop_listening is not None:
            self._stop_listening()

    async def forget(self) -> None:
        """The route is deleted: nothing is kept for it any more."""
        await self.stop()
        try:
            session = Session(self.url, "", self._node.config, wait_s=RETRY_S)
            if self.route.source == HERE:
                self._stop_listening = memory.listen(self.url, self._node)
            async with session, session.subscribe(self.pattern.text, name=self._name) as events:
                await events.forget()
        except (ReknitError, OSError) as error:
            log.warning("%s still keeps events for a route that is deleted: %s", self.route.source, error)
        finally:
            if self._stop_listening is not None:
                self._stop_listening()

    async def _run(self) -> None:
        """Read from the start, whether the other end is there or not: what it misses is owed to it."""
        opening = asyncio.create_task(self._open())
        try:
            await super()._run()
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    async def _open(self) -> None:
        while True:
            try:
                await self._outlet.open()
                return
            except (ReknitError, OSError) as error:
                self.problem = str(error)
                await asyncio.sleep(RETRY_S)

    async def _relay(self) -> None:
        session = Session(self.url, "", self._node.config, wait_s=RETRY_S)
        try:
            async with session:
                await self._carry(session)
        except (ReknitError, OSError) as error:
            self.problem = str(error)
            self._has_begun.set()
            raise

    async def _carry(self, session: Session) -> None:
        source_node = session.link.welcome.node if session.link.welcome is not None else ""
        if source_node and source_node == self._outlet.target:
            raise Refused(Code.INVALID_ARGUMENT, f"both ends are {source_node}")
        self.problem = ""
        wanted = session.subscribe(self.pattern.text, name=self._name, auto_accept=False)
        async with wanted as events:
            self._has_begun.set()
            while batches := await events.take_all():
                await self._pass_on(session, source_node, batches)
                await self._feed.room()

    async def _pass_on(self, session: Session, source_node: str, batches: list[Batch]) -> None:
        fresh = [
            source for source in dict.fromkeys(b.source for b in batches) if source not in self._outlet.vias
        ]
        if fresh:
            found = await session.ask("vias", sources=[source.hex() for source in fresh])
            for source, nodes in zip(fresh, found, strict=True):
                self._outlet.tell_via(source, [*nodes, source_node])
        self._feed.put([batch for batch in batches if self._may_pass(batch)])

    def _may_pass(self, batch: Batch) -> bool:
        nodes = self._outlet.vias[batch.source]
        if self._outlet.target in nodes:
            batch.accept()  # it has been there
            return False
        if len(nodes) > self._node.config.links.hops_max:
            batch.reject(Code.ABORTED, f"it came over {len(nodes) - 1} bridges (links.hops_max)")
            return False
        return True

    @property
    def waiting_bytes(self) -> int:
        """Read at one end and not known to be kept at the other."""
        return self._outlet.bytes

    def _kept(self, batch: Batch) -> None:
        self.events += batch.count
        super()._kept(batch)


class Bridges:
    """All routes of one node; `node.bridges`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._notes = Notes(node.config, FILE, Kept)
        self.vias = Vias(self._notes.value.vias, self._notes.save_soon)
        self._bridges: dict[Route, Bridge] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Take up the routes that there were."""
        for route in self._notes.value.routes:
            self._begin(route)

    async def stop(self) -> None:
        """Stop them; they go on when the node does."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        for bridge in self._bridges.values():
            await bridge.stop()
        self._notes.close()

    def _begin(self, route: Route) -> Bridge:
        bridge = self._bridges[route] = Bridge(self, route)
        bridge.begin()
        return bridge

    # -- routes

    async def add_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Pass on what is published at one authority from now on to another. Raises `Refused`."""
        route = self._checked(source, target, pattern)
        if route in self._bridges:
            raise Refused(Code.ALREADY_EXISTS, f"there is a route {route.name}")
        self._notes.value.routes.append(route)
        self._notes.save()
        await self._begin(route).begun()

    def delete_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Pass on no more. Raises `Refused`."""
        route = self._checked(source, target, pattern)
        bridge = self._bridges.pop(route, None)
        if bridge is None:
            raise Refused(Code.NOT_FOUND, f"there is no route {route.name}: `reknit route list` has all")
        self._notes.value.routes.remove(route)
        self._notes.save()
        task = asyncio.create_task(bridge.forget())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _checked(self, source: str, target: str, pattern: str) -> Route:
        try:
            ends = self._authority(source), self._authority(target)
            text = Pattern(pattern).text
        except LocalError as error:
            raise Refused(Code.INVALID_ARGUMENT, str(error)) from None
        if ends[0] == ends[1]:
            raise Refused(Code.INVALID_ARGUMENT, f"{source} and {target} are the same authority")
        return Route(source, target, text)

    def _authority(self, end: str) -> str:
        """What names one end, whichever way it is written."""
        if end == HERE:
            return HERE
        _, host, port = parse_url(end)
        name = f"{'loopback' if host in LOOPBACK else host.lower()}:{port}"
        own = {self._named(url) for url in self.node.urls if url.startswith(("tcp:", "tls:"))}
        return HERE if name in own else name

    @staticmethod
    def _named(url: str) -> str:
        _, host, port = parse_url(url)
        return f"{'loopback' if host in LOOPBACK else host.lower()}:{port}"

    def rows(self) -> list[dict[str, Any]]:
        """Every route, for people."""
        return [
            {
                "in": route.source,
                "out": route.target,
                "pattern": route.pattern,
                "events": bridge.events,
                "waiting_bytes": bridge.waiting_bytes,
                "problem": bridge.problem,
            }
            for route, bridge in sorted(self._bridges.items())
        ]

    async def ask_add(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Add a route, for who asks over a connection; gives all that there are then."""
        await self.add_route(*_ends(args))
        return self.rows()

    async def ask_delete(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """… or delete one."""
        self.delete_route(*_ends(args))
        return self.rows()

    # -- what comes over others' bridges

    def skipped(self, skip: Skip) -> None:
        """A bridge tells that events are lost where they come from: that is booked here, too."""
        if is_topic(skip.topic) and 0 < skip.start < skip.stop:
            self.node.caches.skips.skip((skip.topic, skip.source), skip.start, skip.stop, skip.text)


def _ends(args: dict[str, Any]) -> tuple[str, str, str]:
    return str(args["in"]), str(args["out"]), str(args.get("pattern", "**"))

"""One bridge: reads at one node as a durable subscriber and publishes at another, with every event's source and seq.

The first node's journal is the queue: an event is accepted there once it is durable at the other, so nothing is lost
while either is away. Where a source has been is told along with it, so that nothing goes round.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.connection.node_connection import NodeConnection
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import Refused, ReknitError
from reknit.node.replication.local_publisher import Feed
from reknit.node.replication.loss_recorder import TEXT
from reknit.node.replication.relay import RETRY_S, Relay
from reknit.outcome import Code
from reknit.topic import Pattern
from reknit.transport import memory
from reknit.wire.links import Skip, Via
from reknit.wire.messages import Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from reknit.node.node import Node
    from reknit.node.replication.local_publisher import OnGap

log = logging.getLogger("reknit.node")

HERE: Final = "here"
"""This node, as one end of a route."""


class Route(msgspec.Struct, frozen=True, order=True):
    """From one authority to another: `here`, or the address of a node."""

    source: str
    target: str
    pattern: str = "**"

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target} ({self.pattern})"


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
            self._link = NodeConnection(url, name, self, node.config)

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

    def connected(self, welcome: Welcome) -> None:
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

    def disconnected(self) -> None:
        self.target = ""


class Bridge(Relay):
    """One route, while it is there."""

    def __init__(self, node: Node, route: Route) -> None:
        self.route = route
        self.problem = ""
        self.events = 0
        """So many events are kept at the other end."""
        self._node = node
        self.pattern = Pattern(route.pattern)
        self._name = f"route/{node.name}/{route.target}/{route.pattern}"
        self.url = route.source if route.source != HERE else f"memory://{id(self):x}/route"
        self._stop_listening: Callable[[], None] | None = None
        self._feed = self._outlet = Outlet(node, self._name, route.target, self._kept, self._gap)
        self._far = RemoteCache(self.url, self._name, node.config)
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
        source_node = session.connection.welcome.node if session.connection.welcome is not None else ""
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

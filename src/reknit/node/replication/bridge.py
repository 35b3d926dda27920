"""One bridge: reads at one node as a durable subscriber and publishes at another, with every event's source and seq.

The first node's journal is the queue. An event is accepted there once it is durable at the other node, so nothing is
lost while either of them is away. A bridge tells the other node which nodes a source has passed, so that events don't go
in circles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import Refused, ReknitError
from reknit.ledger import Series
from reknit.node.replication.batch_publisher import BatchPublisher, OnDurable, OnGap
from reknit.node.replication.gap_filler import RETRY_S, GapFiller
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.replication.relay import accept, retry_forever
from reknit.node.replication.remote_session import ConnectSession, RemoteSession
from reknit.outcome import Code
from reknit.topic import Pattern
from reknit.transport import memory
from reknit.transport.connection import Handler
from reknit.wire.links import Skip, Via
from reknit.wire.messages import Welcome

log = logging.getLogger("reknit.node")

HERE: Final = "here"
"""This node, as one end of a route."""


class BridgeRoute(msgspec.Struct, frozen=True, order=True):
    """From one authority to another: `here`, or the address of a node."""

    source: str
    target: str
    pattern: str = "**"

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target} ({self.pattern})"


class BridgeTarget:
    """The node at which a bridge publishes: this one, or another one, which may be away.

    `visited` says which nodes each source has passed, with the node at which the bridge reads it.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        config: Config,
        node_name: str,
        make_publisher: MakePublisher,
        on_durable: OnDurable,
        on_gap: OnGap,
    ) -> None:
        self.node = ""
        """The target's name, while it is connected."""
        self.visited: dict[bytes, list[str]] = {}
        self._is_here = url == HERE
        self._node_name = node_name
        if self._is_here:
            self.publisher: BatchPublisher = make_publisher(name, on_durable, on_gap)
        else:
            self.publisher = BatchPublisher(
                url,
                name,
                config=config,
                on_durable=on_durable,
                on_gap=on_gap,
                on_linked=self._linked,
                report_loss=self._report_loss,
            )

    async def open(self) -> None:
        """Connect; wait for a node that is away."""
        if self._is_here:
            await self.publisher.open()
            self.node = self._node_name
        else:
            await self.publisher.open(float("inf"))

    def tell_visited(self, source: bytes, nodes: list[str]) -> None:
        """Tell the target which nodes a source has passed, before its events."""
        if self.visited.get(source) != nodes:
            self.visited[source] = nodes
            self.publisher.send(Via(source, nodes))

    def _report_loss(self, series: Series, start: int, stop: int, text: str) -> None:
        self.publisher.send(Skip(*series, start, stop, text))

    def _linked(self, welcome: Welcome | None) -> None:
        self.node = welcome.node if welcome is not None else ""
        if welcome is not None:
            self.publisher.send(*(Via(source, nodes) for source, nodes in self.visited.items()))
            self._drop_events_from_target()
            self.publisher.resend()

    def _drop_events_from_target(self) -> None:
        """The target's name was not known while it was away."""
        for source in self.publisher.unacked_sources():
            if self.node in self.visited.get(source, ()):
                for batch in self.publisher.withdraw(source):
                    batch.accept()


class Bridge:
    """One route, while it exists."""

    def __init__(
        self,
        route: BridgeRoute,
        *,
        config: Config,
        node_name: str,
        handler: Handler,
        connect: ConnectSession,
        make_publisher: MakePublisher,
    ) -> None:
        self.route = route
        self.problem = ""
        self.events = 0
        """How many events are durable at the target."""
        self._config = config
        self._handler = handler
        self._connect = connect
        self._pattern = Pattern(route.pattern)
        self._name = f"route/{node_name}/{route.target}/{route.pattern}"
        self._url = route.source if route.source != HERE else f"memory://{id(self):x}/route"
        self._stop_listening: Callable[[], None] | None = None
        self._gaps = GapFiller(
            self._url, self._name, config=config, fill=lambda *gap: self._target.publisher.fill(*gap)
        )
        self._target = BridgeTarget(
            route.target,
            self._name,
            config=config,
            node_name=node_name,
            make_publisher=make_publisher,
            on_durable=self._durable,
            on_gap=self._gaps.recover,
        )
        self._task: asyncio.Task[None] | None = None
        self._has_begun = asyncio.Event()

    def begin(self) -> None:
        """Begin; either end may come up later."""
        self._listen()
        self._task = asyncio.create_task(self._run())

    def _listen(self) -> None:
        if self.route.source == HERE:
            self._stop_listening = memory.listen(self._url, self._handler)

    def _listen_no_more(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()

    async def begun(self) -> None:
        """Return when events published at the source from now on are owed to the target, or `problem` says why not."""
        await self._has_begun.wait()

    async def stop(self) -> None:
        """Stop; a bridge that begins again resumes where it left off."""
        self._has_begun.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._gaps.close()
        await self._target.publisher.close()
        self._listen_no_more()

    async def forget(self) -> None:
        """The route is deleted: its source retains nothing for it any more."""
        await self.stop()
        try:
            session = self._connect(self._url, config=self._config, wait_s=RETRY_S)
            self._listen()
            async with session, session.subscribe(self._pattern.text, name=self._name) as events:
                await events.forget()
        except (ReknitError, OSError) as error:
            log.warning("%s still retains events for a route that was deleted: %s", self.route.source, error)
        finally:
            self._listen_no_more()

    async def _run(self) -> None:
        """Read from the start, whether the target is connected or not: events that it misses are owed to it."""
        opening = asyncio.create_task(self._open())
        try:
            await retry_forever(self._copy, f"the route {self.route.name}")
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    async def _open(self) -> None:
        while True:
            try:
                await self._target.open()
                return
            except (ReknitError, OSError) as error:
                self.problem = str(error)
                await asyncio.sleep(RETRY_S)

    async def _copy(self) -> None:
        session = self._connect(self._url, config=self._config, wait_s=RETRY_S)
        try:
            async with session:
                await self._copy_from(session)
        except (ReknitError, OSError) as error:
            self.problem = str(error)
            self._has_begun.set()
            raise

    async def _copy_from(self, session: RemoteSession) -> None:
        source_node = session.connection.welcome.node if session.connection.welcome is not None else ""
        if source_node and source_node == self._target.node:
            raise Refused(Code.INVALID_ARGUMENT, f"both ends are {source_node}")
        self.problem = ""
        wanted = session.subscribe(self._pattern.text, name=self._name, auto_accept=False)
        async with wanted as events:
            self._has_begun.set()
            while batches := await events.take_all():
                await self._pass_on(session, source_node, batches)
                await self._target.publisher.room()

    async def _pass_on(self, session: RemoteSession, source_node: str, batches: list[Batch]) -> None:
        sources = dict.fromkeys(batch.source for batch in batches)
        fresh = [source for source in sources if source not in self._target.visited]
        if fresh:
            found = await session.ask("vias", sources=[source.hex() for source in fresh])
            for source, nodes in zip(fresh, found, strict=True):
                self._target.tell_visited(source, [*nodes, source_node])
        self._target.publisher.put([batch for batch in batches if self._may_pass(batch)])

    def _may_pass(self, batch: Batch) -> bool:
        nodes = self._target.visited[batch.source]
        if self._target.node in nodes:
            batch.accept()  # its events came from there
            return False
        if len(nodes) > self._config.links.hops_max:
            batch.reject(Code.ABORTED, f"it came over {len(nodes) - 1} bridges (links.hops_max)")
            return False
        return True

    @property
    def waiting_bytes(self) -> int:
        """Events that were read at one end and are not known to be durable at the other."""
        return self._target.publisher.unacked_bytes

    def _durable(self, batch: Batch) -> None:
        self.events += batch.count
        accept(batch)

"""One bridge: reads at one node as a durable subscriber and publishes at another, with every event's source and seq.

The first node's journal is the queue. An event is accepted there once it is durable at the other node, so nothing is
lost while either of them is away. What is copied is decided by `reknit.protocol.replication.bridge_replication`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from reknit import environment
from reknit.config import Config
from reknit.errors import Refused, ReknitError
from reknit.node.replication.relay import RETRY_S, make_replication, retry_forever
from reknit.node.replication.remote_session import ConnectSession, RemoteSession
from reknit.node.replication.replicator import Replicator, Runner
from reknit.node.replication.visited_nodes import ask_visited
from reknit.outcome import Code
from reknit.protocol.replication.batch_expiry import BatchExpiry
from reknit.protocol.replication.bridge_replication import (
    BridgeReplication,
    SourceDown,
    SourceUp,
    VisitedKnown,
)
from reknit.protocol.subscribe.inputs import LossReport
from reknit.topic import Pattern, is_reserved
from reknit.transport import memory
from reknit.transport.connection import Handler

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


class Bridge:
    """One route, while it exists."""

    def __init__(
        self,
        route: BridgeRoute,
        *,
        config: Config,
        node_name: str,
        handler: Handler,
        runner: Runner,
        connect: ConnectSession,
    ) -> None:
        self.route = route
        self._problem = ""
        self._config = config
        self._handler = handler
        self._connect = connect
        self._pattern = Pattern(route.pattern)
        self._name = f"route/{node_name}/{route.target}/{route.pattern}"
        self._url = route.source if route.source != HERE else memory.new_url("route")
        self._stop_listening: Callable[[], None] | None = None
        self._machine = self._make_machine()
        self._replicator = Replicator(
            self._machine,
            self._name,
            config=config,
            runner=runner,
            source_url=self._url,
            target_url=route.target,
            handler=handler if route.target == HERE else None,
        )
        self._task: asyncio.Task[None] | None = None
        self._has_begun = asyncio.Event()

    def _make_machine(self) -> BridgeReplication:
        config = self._config

        def ttl_ms_of(topic: str) -> int:
            return (
                config.topic(topic).ttl_ms if self.route.source == HERE else 0
            )  # others have their own rules

        zero_us = environment.time_us() - int(asyncio.get_running_loop().time() * 1e6)
        copy = make_replication(self._url, config, BatchExpiry(ttl_ms_of, zero_us))
        return BridgeReplication(copy, config.links.hops_max, is_reserved(self._pattern.text))

    @property
    def events(self) -> int:
        """How many events are durable at the target."""
        return self._machine.copy.events

    @property
    def waiting_bytes(self) -> int:
        """Events that were read at one end and are not known to be durable at the other."""
        return self._machine.publisher.unacked_bytes

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

    @property
    def problem(self) -> str:
        """Why nothing is copied, if so: the reason at the source, or that at the target."""
        return self._problem or self._replicator.problem

    async def begun(self) -> None:
        """Return when events published at the source from now on are owed to the target, or `problem` says why not."""
        await self._has_begun.wait()

    async def stop(self) -> None:
        """Stop; a bridge that begins again resumes where it left off."""
        self._has_begun.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._replicator.close()
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
                await self._replicator.open(float("inf"))
                return
            except (ReknitError, OSError) as error:
                self._problem = str(error)
                await asyncio.sleep(RETRY_S)

    async def _copy(self) -> None:
        session = self._connect(self._url, config=self._config, wait_s=RETRY_S)
        try:
            async with session:
                await self._copy_from(session)
        except (ReknitError, OSError) as error:
            self._problem = str(error)
            self._has_begun.set()
            raise
        finally:
            self._replicator.feed(SourceDown())

    async def _copy_from(self, session: RemoteSession) -> None:
        source_node = session.connection.welcome.node if session.connection.welcome is not None else ""
        if source_node and source_node == self._machine.target:
            raise Refused(Code.INVALID_ARGUMENT, f"both ends are {source_node}")
        self._problem = ""
        self._replicator.feed(SourceUp(source_node))
        reported: list[LossReport] = []

        def on_lost(report: LossReport) -> None:
            reported.append(report)
            wanted.wake()

        wanted = session.subscribe(
            self._pattern.text,
            name=self._name,
            auto_accept=False,
            is_cache=True,
            on_lost=on_lost,
            confirm_losses=False,
        )
        self._replicator.confirm_lost = wanted.confirm_lost
        async with wanted as events:
            self._has_begun.set()
            while (batches := await events.take_all(gives_up=lambda: bool(reported))) or reported:
                self._replicator.take(batches)
                losses = reported.copy()
                reported.clear()
                self._replicator.report(losses)
                await self._answer_question(session)
                await self._replicator.room()

    async def _answer_question(self, session: RemoteSession) -> None:
        """Ask the source which nodes new sources have passed: their events wait for the answer."""
        while (question := self._replicator.question) is not None:
            self._replicator.question = None
            self._replicator.feed(VisitedKnown(await ask_visited(session, question.sources)))

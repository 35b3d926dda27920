"""A node: listens, keeps every event in its journal, and hands it to every subscriber.

The core decides and keeps; this file gives it connections and a thread that syncs, on one loop. What comes over a
connection goes through `reception`, and what is due at some time through `housekeeping`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from reknit.config import Config
from reknit.errors import JournalError, MalformedFrame
from reknit.ledger import Stream
from reknit.node.admin.admin_requests import Answers
from reknit.node.anycast.anycast import NodeAnycast
from reknit.node.committer import Committer
from reknit.node.core.core import Core
from reknit.node.gateways import amqp_server, http_server, relays
from reknit.node.housekeeping import Housekeeping
from reknit.node.journals import open_journal
from reknit.node.links.links import Links
from reknit.node.peers.listeners import Listeners
from reknit.node.peers.peers import Peers, PeerState
from reknit.node.peers.permissions import Permissions
from reknit.node.peers.reception import Reception
from reknit.node.recovery.caches import Caches
from reknit.node.replication.bridges import Bridges
from reknit.outcome import Code
from reknit.protocol.dispatch.inputs import JournalTrimmed
from reknit.protocol.machine import JOURNAL
from reknit.seqset import SeqSet
from reknit.transport.connection import Connection
from reknit.transport.heap import keep_heap
from reknit.transport.tcp import TcpConnection
from reknit.wire.codec import Item
from reknit.wire.messages import Ask, Bye

if TYPE_CHECKING:
    from reknit.gateway.amqp.server import AmqpServer
    from reknit.gateway.http.server import HttpServer
    from reknit.gateway.zenoh.gateway import ZenohGateway
    from reknit.node.replication.aligner import Aligner
    from reknit.node.replication.relay import Relay

log = logging.getLogger("reknit.node")


class Node:
    """One node: runs from `start` to `stop`, or while in its `async with`."""

    def __init__(self, config: Config, rng: Random | None = None) -> None:
        self.config = config
        self.name = config.node.name or socket.gethostname()
        self._listeners = Listeners(self)
        self.urls = self._listeners.urls
        self.started_at = time.time()
        self._rng = rng or Random()
        self._relays: list[Relay | Aligner | ZenohGateway] = []
        self._paused: set[TcpConnection] = set()
        self.watchers: list[Callable[[], None]] = []
        """Called when more of the journal is kept."""
        self.http: HttpServer | None = None
        self.amqp: AmqpServer | None = None

    # -- life

    async def start(self) -> None:
        """Open the journal, then listen. Raises `JournalError`, `InvalidConfig`, `OSError`."""
        self._now = asyncio.get_running_loop().time
        keep_heap()
        self.journal, self.epoch = open_journal(self.config)
        if not self.journal.report.clean:
            log.warning("journal: %s", self.journal.report)
        self.peers = Peers(self.config)
        zero_us = time.time_ns() // 1000 - int(self._now() * 1e6)
        streams = self.journal.ledger.published
        self.permissions = (
            Permissions(self.config, self.peers, streams) if self.config.security.allow else None
        )
        parts = (self.name, self.epoch, self.journal, self.config, self, self._rng, zero_us)
        self.core: Core = Core(*parts, edge=self.permissions)
        self.intake, self.dispatch, self.find = self.core.intake, self.core.dispatch, self.core.find
        self.committer = Committer(
            self.journal, self._on_kept, self._on_failed, self.config.journal.kind == "memory"
        )
        self.send, self.commit = self.peers.send_buffers, self.committer.request
        self.links: Links = Links(self)
        self.core.is_elsewhere = lambda topic: bool(self.links.routes.destinations(topic, "journal"))
        self.anycast: NodeAnycast = NodeAnycast(self, self._rng)
        self.bridges: Bridges = Bridges(self)
        self.answers = Answers(self)
        self.caches: Caches = Caches(self)
        self._reception = Reception(self)
        self._housekeeping = Housekeeping(self)
        self._book_damage()
        try:
            await self._open_doors()
        except BaseException:
            await self.stop()
            raise
        self._housekeeping.start()
        self.anycast.start()
        self.links.outgoing.start()
        self.bridges.start()
        self.run_machines()
        self._relays = relays(self)
        for relay in self._relays:
            await relay.start()

    async def _open_doors(self) -> None:
        await self._listeners.open()
        if self.config.http.listen:
            self.http = http_server(self)
            await self.http.start()
        if self.config.amqp.listen:
            server = amqp_server(self)
            await server.start()
            self.amqp = server

    def _book_damage(self) -> None:
        """What had been kept and is gone from the journal's files is lost to whoever was still owed it."""
        lost = self.journal.report.lost
        if lost:
            self.dispatch.receive(JournalTrimmed(self.journal.start, list(lost)), JOURNAL, self._now())
            self.run_machines()

    async def stop(self) -> None:
        """Stop listening, say goodbye, make durable what was taken, close the journal."""
        for relay in self._relays:
            await relay.stop()
        if self.amqp is not None:  # its clients' messages get their outcomes first
            await self.amqp.stop()
        await self.bridges.stop()
        await self.links.stop()
        await self.anycast.stop()
        if self.http is not None:
            await self.http.stop()
        self._listeners.close()
        await self._housekeeping.stop()
        for peer in self.peers:
            peer.is_leaving = True
            peer.send(Bye(Code.UNAVAILABLE, "the node stops"))
            peer.connection.close()
        await self.caches.close()
        await self.committer.stop()
        try:
            await asyncio.to_thread(self.journal.close)
        except JournalError as error:
            log.error("the journal could not be closed: %s", error)

    async def __aenter__(self) -> Node:
        await self.start()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.stop()

    # -- connections

    def opened(self, connection: Connection) -> None:
        peer = self.peers.add(connection, self._now())
        self.core.joined(peer.id, self._now())

    def lost(self, connection: Connection) -> None:
        self._paused.discard(connection)
        peer = self.peers.remove(connection)
        if peer is not None:
            self.core.left(peer.id, self._now())
            self.anycast.left(peer.id)
            self.links.lost_peer(peer.id)
            self.links.subscriptions_moved()
            self.caches.left(peer)
            self.run_machines()

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        peer = self.peers.of(connection)
        if peer is not None:
            peer.dismiss(Code.INVALID_ARGUMENT, str(error))

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        peer = self.peers.of(connection)
        if peer is not None:
            self.core.blocked(peer.id, is_blocked, self._now())
            self.anycast.subscriptions.blocked(peer.id, is_blocked)
            self.links.blocked(peer.id, is_blocked)
            self.run_machines()

    def received(self, connection: Connection, items: list[Item]) -> None:
        peer = self.peers.of(connection)
        if peer is None or peer.is_leaving:
            return
        now = self._now()
        for item in items:
            if peer.is_welcome:
                self._reception.take(item, peer, now)
            else:
                self._reception.greet(item, peer)
            if peer.is_leaving:
                break
        self.run_machines()
        if self.journal.staged_bytes > self.config.limits.intake_bytes_max and isinstance(
            connection, TcpConnection
        ):
            connection.pause_reading()
            self._paused.add(connection)

    def order(self, ask: Ask, peer: PeerState) -> None:
        """A peer wants something done."""
        self.core.order(ask, peer.id, self._now())

    # -- effects

    def run_machines(self) -> None:
        """Let the machines do what they want, and be there when they want something next."""
        now = self._now()
        self.core.run(now)
        while self.anycast.is_due or self.links.is_due:
            self.links.run(now)
            self.anycast.run(now)
            self.core.run(now)
        self._housekeeping.look()

    def in_hand(self) -> dict[str, dict[Stream, SeqSet]]:
        """For every account of the ledger the events that are known to be under way; others have an end, or are lost."""
        return {**self.dispatch.in_hand(), **self.anycast.in_hand()}

    def _on_kept(self, number: int, end: int) -> None:
        """A commit ended: what it covers is acknowledged and handed out."""
        was_full = self.intake.is_full
        self.core.kept(number, end, self._now())
        self.anycast.kept()
        if was_full and not self.intake.is_full:
            log.warning("the journal takes events again")
        self.run_machines()
        self.links.flows.pump()
        self.caches.kept()
        for watcher in self.watchers:
            watcher()
        while self._paused:
            self._paused.pop().resume_reading()

    def _on_failed(self, error: JournalError) -> None:
        """The journal can't take more: publishers are told to wait, nothing that was kept is lost."""
        if not self.intake.is_full:
            log.error("intake stopped: %s", error)
        self.core.failed(error, self._now())
        self.run_machines()

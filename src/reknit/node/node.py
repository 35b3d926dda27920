"""A node: listens, keeps every event in its journal, and hands it to every subscriber.

The core decides and keeps; this file gives it sockets, a clock and a thread that syncs, on one loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from reknit.config import Config
from reknit.errors import InvalidConfig, JournalError, MalformedFrame
from reknit.ledger import Stream
from reknit.node.answers import Answers
from reknit.node.anycast import NodeAnycast
from reknit.node.bridges import Bridges
from reknit.node.caches import Caches
from reknit.node.committer import Committer
from reknit.node.core import Core
from reknit.node.journals import open_journal
from reknit.node.links import Links
from reknit.node.peers import Peers, PeerState
from reknit.node.permissions import Permissions
from reknit.outcome import Code
from reknit.protocol.codec import Frames, Item, Raw
from reknit.protocol.dispatch_inputs import Trimmed
from reknit.protocol.link_messages import (
    Announce,
    AskWhole,
    Beat,
    Carry,
    Forward,
    Got,
    Link,
    LinkState,
    Pull,
    Returned,
    Skip,
    Via,
)
from reknit.protocol.machine import JOURNAL
from reknit.protocol.messages import (
    VERSION,
    Ask,
    Bye,
    Credit,
    Declare,
    Hello,
    Ping,
    Pong,
    Settle,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from reknit.protocol.outcome_messages import Want
from reknit.protocol.recovery_messages import Heartbeat, Offer, Recover, Recovered, Require, Survey, Surveyed
from reknit.protocol.stream_messages import Abort, Begin, Piece, Room
from reknit.seqset import SeqSet
from reknit.transport import memory, tcp
from reknit.transport.connection import Connection
from reknit.transport.tcp import TcpConnection

if TYPE_CHECKING:
    from reknit.gateway.amqp.server import AmqpServer
    from reknit.gateway.http.server import HttpServer
    from reknit.gateway.zenoh import ZenohGateway
    from reknit.node.aligner import Aligner
    from reknit.node.relay import Relay

log = logging.getLogger("reknit.node")

HOUSEKEEPING_S = 0.5
INDEX_LOOK_S = 0.2


class Node:
    """One node. `async with Node(config) as node: await node.serve_forever()`."""

    def __init__(self, config: Config, rng: Random | None = None) -> None:
        self.config = config
        self.name = config.node.name or socket.gethostname()
        self.urls: list[str] = []
        self.started_at = time.time()
        self._rng = rng or Random()
        self._servers: list[asyncio.Server] = []
        self._stops: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._house_at = 0.0
        self._checkpointing: asyncio.Task[None] | None = None
        self._relays: list[Relay | Aligner | ZenohGateway] = []
        self._paused: set[TcpConnection] = set()
        self.watchers: list[Callable[[], None]] = []
        """Called when more of the journal is kept."""
        self.http: HttpServer | None = None
        self.amqp: AmqpServer | None = None

    # -- life

    async def start(self) -> None:
        """Open the journal, then listen. Raises `JournalError`, `InvalidConfig`, `OSError`."""
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
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
        self.caches = Caches(self)
        self._book_damage()
        try:
            for url in self.config.node.listen:
                await self._listen(url)
            if self.config.http.listen:
                await self._serve_http()
            if self.config.amqp.listen:
                await self._serve_amqp()
        except BaseException:
            await self.stop()
            raise
        self._schedule(self._now() + HOUSEKEEPING_S)
        self._checkpointing = asyncio.create_task(self._checkpoint())
        self.anycast.start()
        self.links.start()
        self.bridges.start()
        self.run_machines()
        await self._start_relays()

    def _book_damage(self) -> None:
        """What had been kept and is gone from the journal's files is lost to whoever was still owed it."""
        lost = self.journal.report.lost
        if lost:
            self.dispatch.receive(Trimmed(self.journal.start, list(lost)), JOURNAL, self._now())
            self._run()

    async def _start_relays(self) -> None:
        """Relays and aligners are clients of other nodes: they are only loaded where there are some."""
        settings = self.config.recovery
        if settings.relays:
            from reknit.node.relay import Relay

            self._relays += [Relay(self, text) for text in settings.relays]
        if settings.align_s:
            from reknit.node.aligner import Aligner

            self._relays += [Aligner(self, url) for url in settings.caches]
        if settings.zenoh_listen or settings.zenoh_connect:
            self._relays.append(self._zenoh())
        for relay in self._relays:
            await relay.start()

    def _zenoh(self) -> ZenohGateway:
        try:
            from reknit.gateway.zenoh import ZenohGateway
        except ModuleNotFoundError as error:
            text = f"needs {error.name}: pip install 'reknit[zenoh]'"
            raise InvalidConfig(
                "recovery.zenoh_listen", self.config.origin("recovery.zenoh_listen"), text
            ) from None
        return ZenohGateway(self)

    async def _listen(self, url: str) -> None:
        if url.startswith("memory://"):
            self._stops.append(memory.listen(url, self))
            self.urls.append(url)
            return
        tls = self._tls() if url.startswith("tls://") else None
        try:
            server, real = await tcp.listen(url, self, self.config.limits.frame_bytes_max, tls)
        except OSError as error:
            # asyncio's own text repeats the address in its own way
            number = error.errno or 0
            why = os.strerror(number).lower() if number > 0 else (error.strerror or str(error))
            text = f"names {url}, which can't be listened on: {why}"
            raise InvalidConfig("node.listen", self.config.origin("node.listen"), text) from None
        self._servers.append(server)
        self.urls.append(real)

    async def _serve_http(self) -> None:
        try:
            from reknit.gateway.http.server import HttpServer
        except ModuleNotFoundError as error:
            text = f"needs {error.name}: pip install 'reknit[http]'"
            raise InvalidConfig("http.listen", self.config.origin("http.listen"), text) from None
        self.http = HttpServer(self)
        await self.http.start()

    async def _serve_amqp(self) -> None:
        try:
            from reknit.gateway.amqp.server import AmqpServer
        except ModuleNotFoundError as error:
            text = f"needs {error.name}: pip install 'reknit[amqp]'"
            raise InvalidConfig("amqp.listen", self.config.origin("amqp.listen"), text) from None
        server = AmqpServer(self)
        await server.start()
        self.amqp = server

    def _tls(self) -> ssl.SSLContext | None:
        settings = self.config.transport
        if not settings.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        if settings.tls_ca_file:
            context.load_verify_locations(settings.tls_ca_file)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

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
        for server in self._servers:
            server.close()
        for stop in self._stops:
            stop()
        if self._timer is not None:
            self._timer.cancel()
        for peer in self.peers:
            peer.is_leaving = True
            peer.send(Bye(Code.UNAVAILABLE, "the node stops"))
            peer.connection.close()
        await self.caches.close()
        if self._checkpointing is not None:
            self._checkpointing.cancel()
            await asyncio.gather(self._checkpointing, return_exceptions=True)
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
            self._run()

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        peer = self.peers.of(connection)
        if peer is not None:
            peer.dismiss(Code.INVALID_ARGUMENT, str(error))

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        peer = self.peers.of(connection)
        if peer is not None:
            self.core.blocked(peer.id, is_blocked, self._now())
            self.anycast.blocked(peer.id, is_blocked)
            self.links.blocked(peer.id, is_blocked)
            self._run()

    def received(self, connection: Connection, items: list[Item]) -> None:
        peer = self.peers.of(connection)
        if peer is None or peer.is_leaving:
            return
        now = self._now()
        for item in items:
            if peer.is_welcome:
                self._take(item, peer, now)
            else:
                self._greet(item, peer)
            if peer.is_leaving:
                break
        self._run()
        if self.journal.staged_bytes > self.config.limits.intake_bytes_max and isinstance(
            connection, TcpConnection
        ):
            connection.pause_reading()
            self._paused.add(connection)

    def _greet(self, item: Item, peer: PeerState) -> None:
        if not isinstance(item, Hello):
            peer.dismiss(Code.FAILED_PRECONDITION, "the first message on a connection is a hello")
            return
        if item.version != VERSION:
            text = f"this node speaks version {VERSION} of the protocol, not {item.version}: upgrade the older side"
            peer.dismiss(Code.UNIMPLEMENTED, text)
            return
        if self.permissions is not None and not self.permissions.greet(item.token, peer):
            return
        peer.name = item.name
        peer.is_welcome = True
        heartbeat_s = self.config.transport.heartbeat_s
        bytes_max = self.config.limits.frame_bytes_max
        peer.send(Welcome(VERSION, self.name, self.epoch, heartbeat_s, bytes_max))

    def _take(self, item: Item, peer: PeerState, now: float) -> None:
        if self.permissions is not None and not self.permissions.admits(item, peer):
            return
        match item:
            case Frames() if peer.id in self.links.by_peer:
                self.links.take_from_peer(item, peer)
            case Frames():
                published = self.caches.take_frames(item, peer)
                if published is not None:
                    self.core.receive(published, peer.id, now)
            case Declare(source=source):
                self.links.declared(source)
                self.core.receive(item, peer.id, now)
            case Credit() | Unsubscribe() | Settle() | Subscribe() if self.anycast.take(item, peer):
                pass
            case Credit():
                self.core.receive(item, peer.id, now)
            case Unsubscribe():
                self.core.receive(item, peer.id, now)
                self.links.subscriptions_moved()
            case Want():
                self.anycast.want(item, peer)
            case Piece() | Room() | Abort() if peer.id in self.links.by_peer:
                self.links.take_from_peer(item, peer)
            case Begin() | Piece() | Room() | Abort():
                self.anycast.streams.take(item, peer)
            case Skip():
                self.bridges.skipped(item)
            case Via():
                self.bridges.came_via(item)
            case Settle():
                self.caches.watch(item, peer)
                self.core.receive(item, peer.id, now)
            case Subscribe():
                self.links.subscriptions_moved()
                self.caches.watch(item, peer)
                self.core.receive(item, peer.id, now)
            case Recover() | Recovered() | Survey() | Surveyed() | Heartbeat() | Offer() | Require():
                self.caches.take(item, peer)
            case (
                Link()
                | LinkState()
                | Announce()
                | AskWhole()
                | Beat()
                | Forward()
                | Returned()
                | Pull()
                | Carry()
                | Got()
            ):
                self.links.take_from_peer(item, peer)
            case Ask():
                self.answers.answer(item, peer)
            case Ping():
                peer.send(Pong())
            case Pong():
                pass
            case Bye():
                peer.is_leaving = True
                peer.connection.close()
            case Raw() | Hello():
                peer.dismiss(Code.INVALID_ARGUMENT, f"{type(item).__name__} has no place here")
            case _:
                peer.dismiss(
                    Code.INVALID_ARGUMENT, f"{type(item).__name__} is for a client to receive, not to send"
                )

    def order(self, ask: Ask, peer: PeerState) -> None:
        """A peer wants something done."""
        self.core.order(ask, peer.id, self._now())

    # -- effects

    def _run(self) -> None:
        """Let the core do what its machines want, and be there when it wants something next."""
        now = self._now()
        self.core.run(now)
        while self.anycast.is_due or self.links.is_due:
            self.links.run(now)
            self.anycast.run(now)
            self.core.run(now)
        due = self._next_deadline()
        if due is not None and due < self._timer_at:
            self._schedule(due)

    def in_hand(self) -> dict[str, dict[Stream, SeqSet]]:
        """For every account of the ledger the events that are known to be under way; others have an end, or are lost."""
        return {**self.dispatch.in_hand(), **self.anycast.in_hand()}

    def run_machines(self) -> None:
        """See to what the machines want, for those who spoke to one of them directly."""
        self._run()

    def _next_deadline(self) -> float | None:
        due = (
            self.core.next_deadline(),
            self.anycast.machine.next_deadline(),
            self.links.routes.next_deadline(),
        )
        return min((at for at in due if at is not None), default=None)

    def _schedule(self, due: float) -> None:
        """Look after what is due by then, or after the usual while."""
        now = self._now()
        self._timer_at = min(max(due, now + 0.001), now + HOUSEKEEPING_S)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._timer_at, self._keep_house)

    def _on_kept(self, number: int, end: int) -> None:
        """A commit ended: what it covers is acknowledged and handed out."""
        was_full = self.intake.is_full
        self.core.kept(number, end, self._now())
        self.anycast.kept()
        if was_full and not self.intake.is_full:
            log.warning("the journal takes events again")
        self._run()
        self.links.kept()
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
        self._run()

    # -- time

    def _keep_house(self) -> None:
        now = self._now()
        self._timer_at = float("inf")
        self.core.tick(now)
        self.anycast.machine.tick(now)
        self.links.routes.tick(now)
        if now >= self._house_at:
            self._house_at = now + HOUSEKEEPING_S
            self.peers.check(now)
            self.core.trim(now)
        self._run()
        self.answers.sample(now)
        due = self._next_deadline()
        self._schedule(now + HOUSEKEEPING_S if due is None else due)

    async def _checkpoint(self) -> None:
        """Save the journal's index off the loop: seldom, as that holds up the disk, unless much is not in it yet."""
        settings, saved_at = self.config.journal, self._now()
        while True:
            await asyncio.sleep(max(min(settings.index_interval_s, INDEX_LOOK_S), 0.01))
            is_due = self._now() - saved_at >= settings.index_interval_s
            if not is_due and self.journal.unsaved_bytes < settings.index_bytes:
                continue
            saved_at = self._now()
            try:
                await asyncio.to_thread(self.journal.checkpoint)
            except JournalError as error:
                log.warning("the index could not be saved, it will be tried again: %s", error)

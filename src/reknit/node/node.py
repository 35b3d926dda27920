"""A node: listens, keeps every event in its journal, and hands it to every subscriber.

The machines decide (`Intake`, `Dispatch`); this file carries out what they want, in their order, on one loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import Gone, InvalidConfig, JournalError, JournalFull, LocalError, MalformedFrame
from reknit.node.answers import Answers
from reknit.node.committer import Committer
from reknit.node.dead_letters import DeadLetters
from reknit.node.journals import open_journal
from reknit.node.peers import Peers, PeerState
from reknit.node.starts import resolve
from reknit.outcome import Code
from reknit.protocol.codec import Frames, Item, Raw, encode
from reknit.protocol.dispatch import Blocked, Dispatch, Grown, Scanned, Trimmed, Vanished
from reknit.protocol.effects import Append, AppendRecord, DeadLetter, Deliver, Redeliver, Scan, Send
from reknit.protocol.intake import Full, Intake, Kept, Left, Room
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
    Unsubscribed,
    Welcome,
)
from reknit.protocol.messages import Deliver as DeliverMessage
from reknit.protocol.retry import Retry
from reknit.store.journal import Run
from reknit.transport import memory, tcp
from reknit.transport.connection import Connection
from reknit.transport.tcp import TcpConnection

log = logging.getLogger("reknit.node")

HOUSEKEEPING_S = 0.5
GROW_BYTES = 4 << 20

Effect = Append | AppendRecord | DeadLetter | Deliver | Redeliver | Scan | Send


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
        self._staged_number = 0
        self._kept_number = 0
        self._needs_sync = False
        self._deferred: deque[Effect] = deque()
        self._paused: set[TcpConnection] = set()
        self._seen_end = 0

    # -- life

    async def start(self) -> None:
        """Open the journal, then listen. Raises `JournalError`, `InvalidConfig`, `OSError`."""
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self.journal, self.epoch = open_journal(self.config)
        if not self.journal.report.clean:
            log.warning("journal: %s", self.journal.report)
        self._seen_end = self.journal.end
        self.peers = Peers(self.config)
        limits, dispatch = self.config.limits, self.config.dispatch
        published = self.journal.ledger.published
        kept = {source: seqs.last for (_, source), seqs in published.items() if seqs}
        self.intake = Intake(kept, limits.sources_max, limits.batch_events_max)
        retry = Retry(dispatch.retry_backoff_s_min, dispatch.retry_backoff_s_max, dispatch.attempts_max)
        zero_us = time.time_ns() // 1000 - int(self._now() * 1e6)
        self.dispatch = Dispatch(
            self.journal.ledger, self.journal.end, self.intake.next_number, self._rng, retry, zero_us
        )
        self.dead_letters = DeadLetters(self.name, dispatch.dead_letter_topic, self.journal)
        self.committer = Committer(self.journal, self._on_kept, self._on_failed)
        self.answers = Answers(self)
        self._memory_topics = any(rule.durability == "memory" for rule in self.config.topics)
        for url in self.config.node.listen:
            await self._listen(url)
        self._schedule(self._now() + HOUSEKEEPING_S)
        self._checkpointing = asyncio.create_task(self._checkpoint())

    async def _listen(self, url: str) -> None:
        if url.startswith("memory://"):
            self._stops.append(memory.listen(url, self))
            self.urls.append(url)
            return
        tls = self._tls() if url.startswith("tls://") else None
        try:
            server, real = await tcp.listen(url, self, self.config.limits.frame_bytes_max, tls)
        except OSError as error:
            raise InvalidConfig(
                "node.listen", url, f"can't be listened on: {error.strerror or error}"
            ) from None
        self._servers.append(server)
        self.urls.append(real)

    def _tls(self) -> ssl.SSLContext | None:
        settings = self.config.transport
        if not settings.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        return context

    async def stop(self) -> None:
        """Stop listening, say goodbye, make durable what was taken, close the journal."""
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
        self.peers.add(connection, self._now())

    def lost(self, connection: Connection) -> None:
        self._paused.discard(connection)
        peer = self.peers.remove(connection)
        if peer is not None:
            self.intake.receive(Left(), peer.id, self._now())
            self.dispatch.receive(Left(), peer.id, self._now())
            self._run()

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        peer = self.peers.of(connection)
        if peer is not None:
            peer.dismiss(Code.INVALID_ARGUMENT, str(error))

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        peer = self.peers.of(connection)
        if peer is not None:
            self.dispatch.receive(Blocked(is_blocked), peer.id, self._now())
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
        peer.name = item.name
        peer.is_welcome = True
        heartbeat_s = self.config.transport.heartbeat_s
        bytes_max = self.config.limits.frame_bytes_max
        peer.send(Welcome(VERSION, self.name, self.epoch, heartbeat_s, bytes_max))

    def _take(self, item: Item, peer: PeerState, now: float) -> None:
        match item:
            case Frames() | Declare():
                self.intake.receive(item, peer.id, now)
            case Credit() | Settle() | Unsubscribe():
                self.dispatch.receive(item, peer.id, now)
            case Subscribe():
                self._subscribe(item, peer, now)
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

    def _subscribe(self, request: Subscribe, peer: PeerState, now: float) -> None:
        if len(self.dispatch.queues) >= self.config.limits.subscriptions_max:
            text = f"the node has {self.config.limits.subscriptions_max} subscriptions (limits.subscriptions_max)"
            peer.send(Unsubscribed(request.sub, Code.RESOURCE_EXHAUSTED, text))
            return
        try:
            opened = resolve(request, self.journal, self.epoch)
        except LocalError as error:
            peer.send(Unsubscribed(request.sub, Code.INVALID_ARGUMENT, str(error)))
            return
        self.dispatch.receive(opened, peer.id, now)

    # -- effects

    def _run(self) -> None:
        """Carry out what the machines want until they want nothing more; then see to durability."""
        while True:
            effects: list[Effect] = [*self.intake.take_effects(), *self.dispatch.take_effects()]
            if not effects:
                break
            for effect in effects:
                self._perform(effect)
        if self._staged_number > self._kept_number:
            self.committer.request(self._staged_number, self._needs_sync)
            self._needs_sync = False
        due = self.dispatch.next_deadline()
        if due is not None and due < self._timer_at:
            self._schedule(due)

    def _schedule(self, due: float) -> None:
        """Look after what is due by then, or after the usual while."""
        now = self._now()
        self._timer_at = min(max(due, now + 0.001), now + HOUSEKEEPING_S)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._timer_at, self._keep_house)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Append() | AppendRecord() | DeadLetter():
                self._keep(effect)
            case Deliver():
                self._deliver(effect)
            case Send(peer=peer_id, message=message):
                peer = self.peers.get(peer_id)
                if peer is not None:
                    peer.send(message)
            case Redeliver():
                self._redeliver(effect)
            case Scan(key=key, position=position, bytes_max=bytes_max):
                run = self._read(position, bytes_max)
                self.dispatch.receive(Scanned(key, run), JOURNAL, self._now())
            case _:
                assert_never(effect)

    def _keep(self, effect: Append | AppendRecord | DeadLetter) -> None:
        """Stage for the journal. What does not fit now waits in order: nothing is dropped."""
        if self._deferred:
            self._deferred.append(effect)
            return
        try:
            self._stage(effect)
        except JournalFull as error:
            self._deferred.append(effect)
            self._on_failed(error)

    def _stage(self, effect: Append | AppendRecord | DeadLetter) -> None:
        match effect:
            case Append(number=number, data=data, heads=heads):
                self.journal.stage(data, heads)
                self._staged_number = number
                if not self._memory_topics or any(self._is_durable(head.topic) for head in heads):
                    self._needs_sync = True
            case AppendRecord(number=number, record=record):
                self.journal.stage_record(record)
                self._staged_number = number
                self._needs_sync = True
            case DeadLetter():
                batch = self.dead_letters.write(effect)
                if batch is not None:
                    self.journal.stage(bytes(batch.data), [batch.head])
                    self._staged_number = self.intake.next_number()
                    self._needs_sync = True
            case _:
                assert_never(effect)

    def _is_durable(self, topic: str) -> bool:
        return self.config.topic(topic).durability == "durable"

    def _deliver(self, effect: Deliver) -> None:
        peer = self.peers.get(effect.peer)
        if peer is not None:
            header = encode(DeliverMessage(effect.sub, effect.size, effect.position))
            peer.send_buffers([header, *(piece.run.cut(piece.low, piece.high) for piece in effect.pieces)])

    def _redeliver(self, effect: Redeliver) -> None:
        peer = self.peers.get(effect.peer)
        if peer is None:
            return
        batches = self.find(effect.topic, effect.source, effect.start, effect.stop)
        found = 0
        for batch in batches:
            found += batch.count
            header = DeliverMessage(effect.sub, batch.head.length, -1, effect.attempt, counted=False)
            peer.send_buffers([encode(header), batch.data])
        if found < effect.stop - effect.start:
            gone = Vanished((effect.peer, effect.sub), effect.topic, effect.source, effect.start, effect.stop)
            self.dispatch.receive(gone, JOURNAL, self._now())

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The events `[start, stop)` that are held, as batches cut to that range."""
        found: list[Batch] = []
        for entry in self.journal.find(topic, source, start, stop):
            try:
                found.append(Batch.parse(self.journal.fetch(entry)).cut(start, stop))
            except Gone:
                continue
        return found

    def _read(self, position: int, bytes_max: int) -> Run:
        return self.journal.read(max(position, self.journal.start), None, bytes_max)

    # -- the journal's answers

    def _on_kept(self, number: int, end: int) -> None:
        """A commit ended: what it covers is acknowledged and handed out."""
        now = self._now()
        self._kept_number = max(self._kept_number, number)
        runs: list[Run] = []
        while self._seen_end < end:
            run = self.journal.read(self._seen_end, end, GROW_BYTES)
            runs.append(run)
            self._seen_end = run.next_position
        self.dispatch.receive(Grown(runs, end), JOURNAL, now)
        kept = Kept(number)
        self.intake.receive(kept, JOURNAL, now)
        self.dispatch.receive(kept, JOURNAL, now)
        if self.intake.is_full:
            log.warning("the journal takes events again")
            self.intake.receive(Room(), JOURNAL, now)
        self._stage_deferred()
        self._run()
        while self._paused:
            self._paused.pop().resume_reading()

    def _stage_deferred(self) -> None:
        while self._deferred:
            effect = self._deferred[0]
            assert isinstance(effect, Append | AppendRecord | DeadLetter)
            try:
                self._stage(effect)
            except JournalFull:
                return
            self._deferred.popleft()

    def _on_failed(self, error: JournalError) -> None:
        """The journal can't take more: publishers are told to wait, nothing that was kept is lost."""
        if not self.intake.is_full:
            log.error("intake stopped: %s", error)
        self.intake.receive(Full(str(error)), JOURNAL, self._now())
        self._run()

    # -- time

    def _keep_house(self) -> None:
        now = self._now()
        self._timer_at = float("inf")
        self.dispatch.tick(now)
        if now >= self._house_at:
            self._house_at = now + HOUSEKEEPING_S
            self.peers.check(now)
            self._trim(now)
        self._run()
        self.answers.sample(now)
        due = self.dispatch.next_deadline()
        self._schedule(now + HOUSEKEEPING_S if due is None else due)

    def _trim(self, now: float) -> None:
        """Apply retention; what a durable subscriber is still owed stays, unless the configuration says otherwise."""
        retention = self.config.retention
        if not (retention.count_max or retention.bytes_max or retention.age_s_max):
            return
        floor = None
        if retention.protect_unsettled:
            floors = [account.floor for account in self.journal.ledger.accounts.values()]
            floor = min(floors, default=None)
        removed = self.journal.trim(None, floor)
        if removed:
            self.dispatch.receive(Trimmed(self.journal.start, removed), JOURNAL, now)

    async def _checkpoint(self) -> None:
        """Save the journal's index every now and then, off the loop."""
        while True:
            await asyncio.sleep(max(self.config.journal.index_interval_s, 0.01))
            try:
                await asyncio.to_thread(self.journal.checkpoint)
            except JournalError as error:
                log.warning("the index could not be saved, it will be tried again: %s", error)

"""A node: listens, stores every event in its journal, and delivers it to every subscriber.

The core decides; this file gives it connections and a thread that syncs, on one event loop. Messages that come over a
connection go through `peers/reception.py` and `message_table.py`, and everything that is due at some time through
`housekeeping.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random

from reknit import environment
from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import JournalError, MalformedFrame
from reknit.ledger import ANYCAST, Held, Series
from reknit.node.access_review import AccessReview
from reknit.node.admin.admin_requests import AdminResponder
from reknit.node.admin.figures import NodeFigures, Shown
from reknit.node.admin.inspection.clients import Clients
from reknit.node.admin.inspection.event_story import EventStories
from reknit.node.admin.queue_figures import QueueFigures
from reknit.node.anycast.anycast import NodeAnycast
from reknit.node.anycast.distributions import Distributions
from reknit.node.api import Attachment, Door, GatewayNode
from reknit.node.audit_log import AuditLog
from reknit.node.clock_watch import ClockWatch
from reknit.node.committer import CommitThread
from reknit.node.containment import Containment
from reknit.node.core.core import Core
from reknit.node.core.core_quotas import CoreQuotas
from reknit.node.core.journal_tail import JournalTail
from reknit.node.core.shell import NodeShell
from reknit.node.file_reloader import FileReloader
from reknit.node.housekeeping import Housekeeping
from reknit.node.journals import open_journal
from reknit.node.links.link_admin import LinkAdmin
from reknit.node.links.links import Links
from reknit.node.message_table import NodeMessages
from reknit.node.peers.budget import BudgetedPeer
from reknit.node.peers.listeners import Listeners
from reknit.node.peers.peers import Hold, Peers, PeerState
from reknit.node.peers.permissions import Permissions, is_of_node
from reknit.node.peers.reception import Reception
from reknit.node.recovery.caches import NodeCaches
from reknit.node.recovery.loss_recorder import LossRecorder
from reknit.node.replication.bridges import Bridges
from reknit.node.replication.local_publisher import LocalPublisher, OnDurable, OnGap, OnRefused
from reknit.node.replication.remote_session import ConnectSession
from reknit.outcome import Code, Reason
from reknit.protocol.dispatch.inputs import JournalTrimmed
from reknit.protocol.machine import JOURNAL
from reknit.protocol.publish.rate_quotas import RateQuotas
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.transport.connection import Connection
from reknit.transport.heap import keep_heap
from reknit.trust.exposure import exposures
from reknit.trust.gate import Gate
from reknit.wire.codec import Item
from reknit.wire.messages import VERSION, Bye, Welcome

log = logging.getLogger("reknit.node")

MakeDoor = Callable[[GatewayNode], Door]
MakeImporters = Callable[["Node"], list[Attachment]]


class Node:
    """One node: runs from `start` to `stop`, or while in its `async with`. `reknit.server.build_node` makes one.

    It has more than 15 attributes, because it is where the parts of a node are put together: one attribute for each of
    them, made by `start`. The parts don't know each other beyond what they are given there.
    """

    def __init__(
        self,
        config: Config,
        *,
        connect: ConnectSession,
        doors: Mapping[str, MakeDoor] | None = None,
        importers: MakeImporters | None = None,
        rng: Random | None = None,
    ) -> None:
        self.config = config
        self.name = config.node.name or socket.gethostname()
        self.started_at = environment.monotonic()
        self.watchers: list[Callable[[], None]] = []
        """Called when more of the journal is durable."""
        self.doors: dict[str, Door] = {}
        """The gateways that listen, by name."""
        self.importers: list[Attachment] = []
        """Relays, aligners and gateways that bring events from elsewhere."""
        self.reloader = FileReloader()
        self.is_broken = asyncio.Event()
        """The node can store nothing more and is to be restarted, as `journal.failed_sync` says."""
        self._listeners = Listeners(config, self)
        self.urls = self._listeners.urls
        self._connect = connect
        self._make_doors = doors or {}
        self._make_importers = importers
        self._rng = rng or environment.make_random()
        self._paused: dict[PeerState, None] = {}
        """Peers that are not read from while too much is staged, in the order in which they were paused."""
        self._is_stopped = False

    # -- life

    async def start(self) -> None:
        """Open the journal, then listen. Raises `JournalError`, `InvalidConfig`, `OSError`."""
        self._now = asyncio.get_running_loop().time
        keep_heap()
        self.gate = Gate(self.config)
        self.journal, self.epoch = open_journal(self.config)
        if not self.journal.report.clean:
            log.warning("journal: %s", self.journal.report)
        self._make_core()
        self._make_parts()
        self._make_reception(self._make_admin())
        self._follow_rules()
        self._report_damage()
        try:
            await self._open_doors()
            self._housekeeping.start()
            self.anycast.start()
            self.links.outgoing.start()
            self.bridges.start()
            self.run_machines()
            await self._start_importers()
        except BaseException:
            await self.stop()
            raise

    async def _start_importers(self) -> None:
        for importer in self._make_importers(self) if self._make_importers is not None else ():
            await importer.start()
            self.importers.append(importer)
            if isinstance(importer, Shown):
                self.figures.shown[importer.shown_as] = importer

    def _make_core(self) -> None:
        config = self.config
        self.peers = Peers(config, self.gate.quotas)
        self._containment = Containment(self.peers)
        self._permissions: Permissions | None = None
        if not self.gate.is_open:
            call_later = asyncio.get_running_loop().call_later
            self._permissions = Permissions(config, self.gate, self.peers, self.journal.ledger, call_later)
        in_memory = config.journal.kind == "memory"
        self._committer = CommitThread(self.journal, self._on_durable, self._on_failed, in_memory)
        self.core: Core = Core(
            self.name,
            self.epoch,
            self.journal,
            config,
            NodeShell(self.peers.send_buffers, self._committer.request),
            self._rng,
            now_us=environment.time_us,
            zero_us=environment.time_us() - int(self._now() * 1e6),
            edge=self._permissions,
            is_elsewhere=lambda topic: bool(self.links.routes.destinations(topic, "journal")),
            queue_elsewhere=lambda account: self.links.queue_node(account),
            is_of_node=lambda peer: is_of_node(self.peers.get(peer), self.gate),
            quotas=self._make_quotas(),
        )
        self._audit_log = AuditLog(
            self.name, audit=self.gate.audit, settings=config.security, core=self.core, peers=self.peers
        )

    def _make_quotas(self) -> CoreQuotas | None:
        """None where nobody has a quota: then nothing is counted."""
        gate = self.gate
        if not gate.quotas.is_on:
            return None
        return CoreQuotas(gate.quotas, self.peers.quota_name, self.journal.ledger, gate.refusals)

    @property
    def intake_problem(self) -> str:
        """Why the node takes no events now; empty if it does."""
        return self.journal.problem or self.core.intake.stopped

    @property
    def rates(self) -> RateQuotas | None:
        """The quotas for publishing; None if there are none."""
        quotas = self.core.quotas
        return None if quotas is None or quotas.publishing is None else quotas.rates

    @property
    def quotas(self) -> CoreQuotas | None:
        """The quotas of identities; None if there are none."""
        return self.core.quotas

    def claim(self, name: str, owner: str) -> None:
        """The durable subscriber that a gateway opens next under this name belongs to an identity."""
        self.core.openings.claims[name] = owner

    def _make_parts(self) -> None:
        config, core, peers = self.config, self.core, self.peers
        self._losses = LossRecorder(core=core, run_machines=self.run_machines)
        distributions = Distributions(config)
        self.links: Links = Links(
            config=config,
            node_name=self.name,
            epoch=self.epoch,
            urls=self.urls,
            core=core,
            distribution=distributions.of,
            make_publisher=self.local_publisher,
            run_machines=self.run_machines,
            run_soon=self._run_soon,
            clock=self._now,
        )
        self.anycast: NodeAnycast = NodeAnycast(
            config=config,
            node_name=self.name,
            core=core,
            routes=self.links.routes,
            url_of=self.links.url,
            distributions=distributions,
            make_publisher=self.local_publisher,
            run_soon=self._run_soon,
            call_soon=asyncio.get_running_loop().call_soon,
            clock=self._now,
            rng=self._rng,
        )
        core.parts.add("links", self.links)
        core.parts.add("anycast", self.anycast)
        core.parts.add("streams", self.anycast.streams)
        core.parts.add("audit", self._audit_log)
        self.gate.audit.written_by(self._run_soon)
        self.reloader.watch(self.gate.audit.reloaded)
        self.bridges: Bridges = Bridges(
            config=config,
            node_name=self.name,
            urls=self.urls,
            handler=self,
            runner=self,
            connect=self._connect,
            report_loss=self._losses.skip,
        )
        self.caches: NodeCaches = NodeCaches(
            config=config, node_name=self.name, core=core, peers=peers, run_machines=self.run_machines
        )

    def _make_admin(self) -> AdminResponder:
        config, core = self.config, self.core
        self.figures: NodeFigures = NodeFigures(
            config=config,
            node_name=self.name,
            epoch=self.epoch,
            urls=self.urls,
            started_at=self.started_at,
            core=core,
            gate=self.gate,
            peers=self.peers,
            bridges=self.bridges,
            doors=self.doors,
            held_by=self.held_by,
            commits=self._committer.times,
            anycast_repeats=lambda: self.anycast.repeats,
        )
        return AdminResponder(
            config=config,
            core=core,
            figures=self.figures,
            queues=QueueFigures(core, self.peers, self.held_by, self.anycast.machine.paths),
            links=LinkAdmin(self.links, cost=config.links.cost, unsettled=self.anycast.unsettled),
            anycast=self.anycast,
            bridges=self.bridges,
            aligned=self.caches.aligned,
            report_loss=self._losses.skip,
            on_order=self._audit_log.ordered,
            clients=Clients(core, self.peers, self.doors, is_node=self.links.knows, clock=self._now),
            stories=EventStories(
                core,
                node_name=self.name,
                links=self.links,
                pipelines=self.figures.pipelines,
                attempts=self.anycast.attempts,
            ),
            audited=self._audit_log.newest,
        )

    def _make_reception(self, admin: AdminResponder) -> None:
        config, core = self.config, self.core
        router = NodeMessages(
            core=core,
            links=self.links,
            anycast=self.anycast,
            caches=self.caches,
            bridges=self.bridges,
            admin=admin,
        )
        heartbeat_s, bytes_max = config.transport.heartbeat_s, config.limits.frame_bytes_max
        self._reception = Reception(
            welcome=Welcome(VERSION, self.name, self.epoch, heartbeat_s, bytes_max),
            permissions=self._permissions,
            table=router.table(),
            run_machines=self.run_machines,
            call_soon=asyncio.get_running_loop().call_soon,
            clock=self._now,
            on_error=self._containment.failed,
            connections=self.gate.connections if self.gate.connections.is_on else None,
        )
        self._housekeeping = Housekeeping(
            core=core,
            chores=(self.peers.check, core.trim, ClockWatch().check, self.reloader.check, self.gate.expire),
            run_machines=self.run_machines,
            sample=self.figures.sample,
            journal=self.journal,
            settings=config.journal,
        )

    def _follow_rules(self) -> None:
        """Read rules and tokens again when they change, and end what they allow no longer."""
        if self._permissions is None:
            return
        review = AccessReview(
            core=self.core,
            anycast=self.anycast,
            links=self.links,
            peers=self.peers,
            permissions=self._permissions,
            clock=self._now,
        )
        self.gate.watchers += [review.run, self._run_soon]
        for name, part in self.gate.reloadables().items():
            self.reloader.add(name, part)

    async def _open_doors(self) -> None:
        await self._listeners.open()
        self.reloader.add("the certificate for tls://", self._listeners.tls)
        self.gate.trust(self._listeners.tls)
        for name, make in self._make_doors.items():
            door = make(self)
            await door.start()
            self.doors[name] = door
        for warning in exposures(
            [*self.urls, *(door.url for door in self.doors.values())], self.gate.is_open
        ):
            log.warning("%s", warning)

    def _report_damage(self) -> None:
        """Events that are gone from the journal's files are lost to the subscribers that were still owed them."""
        report = self.journal.report
        lost = [*report.lost, *report.set_aside]
        if lost:
            damage = JournalTrimmed(self.journal.start, lost, Reason.DAMAGED)
            self.core.dispatch.receive(damage, JOURNAL, self._now())
            self.run_machines()

    async def stop(self) -> None:
        """Stop listening, say goodbye, make everything durable, close the journal."""
        for importer in self.importers:
            await importer.stop()
        for door in reversed(self.doors.values()):  # while the outcomes of their clients' messages still come
            await door.stop()
        await self.bridges.stop()
        await self.links.stop()
        await self.anycast.stop()
        self._listeners.close()
        await self._housekeeping.stop()
        for peer in self.peers:
            peer.leave(Bye(Code.UNAVAILABLE, "the node stops"))
        await self.caches.close()
        self._audit_log.flush(self._now())
        self.run_machines()
        await self._committer.stop()
        self._is_stopped = True
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
        """A peer connected."""
        peer = self.peers.add(connection, self._now())
        self.core.joined(peer.id, self._now())

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        peer = self.peers.remove(connection)
        if peer is not None:
            self._paused.pop(peer, None)
            self._reception.left(peer)
            if self._permissions is not None:
                self._permissions.left(peer)
            try:
                self.core.left(peer.id, self._now(), is_abrupt=not peer.is_leaving)
            except Exception as error:
                self._containment.report(f"the end of {peer}", error)
            self.run_machines()

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        """A peer broke the protocol."""
        peer = self.peers.of(connection)
        if peer is not None:
            peer.dismiss(Code.INVALID_ARGUMENT, str(error))

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        """A connection's send buffer is full, or has room again."""
        peer = self.peers.of(connection)
        if peer is not None:
            peer.blocked(is_blocked)
            self.core.blocked(peer.id, is_blocked, self._now())
            if not is_blocked and not peer.is_reading:
                self._reception.resume(peer)
            self.run_machines()

    def received(self, connection: Connection, items: list[Item]) -> None:
        """Messages and batches came in."""
        peer = self.peers.of(connection)
        if peer is None or peer.is_leaving:
            return
        if peer.waiting:
            peer.waiting += items
            return
        self._reception.receive(items, peer, self._now())
        self.run_machines()
        if self.journal.staged_bytes > self.config.limits.intake_bytes_max:
            peer.hold(Hold.JOURNAL)
            self._paused[peer] = None

    # -- effects

    def run_machines(self) -> None:
        """Perform the effects of all machines, and schedule their next tick. A closed journal takes no effects."""
        if self._is_stopped:
            return
        try:
            self.core.run(self._now())
        except Exception as error:
            self._containment.report("of a machine", error)
        self._housekeeping.reschedule()

    def _run_soon(self) -> None:
        self._housekeeping.run_soon()

    def in_hand(self) -> dict[str, dict[Series, SeqSet]]:
        """For every account of the ledger, the events in flight; all others have an outcome, or are lost."""
        return {**self.core.dispatch.in_hand(), **self.anycast.in_hand()}

    def held_by(self, name: str) -> Held | None:
        """The same for one account, by series; None if nobody knows."""
        return (self.anycast if name.startswith(ANYCAST) else self.core.dispatch).held_by(name)

    @property
    def tail(self) -> JournalTail:
        """Reads the journal for everybody who follows it: what is new is read once."""
        return self.core.tail

    def budget_clients(self, clients: Callable[[], Iterable[BudgetedPeer]]) -> None:
        """Count what a gateway holds for its clients against the budget of all peers."""
        self.peers.clients.append(clients)

    def subscriptions(self) -> Iterator[tuple[str, Pattern]]:
        """Everybody who is subscribed now: the name of the subscriber, or of its connection, and the pattern."""
        for queue in self.core.dispatch.queues.values():
            yield queue.name or f"{queue.peer} {queue.sub}", queue.pattern

    def find(
        self, topic: str, source: bytes, start: int, stop: int, bytes_max: int | None = None
    ) -> list[Batch]:
        """The events `[start, stop)` that are held, as batches cut to that range: as many as fit."""
        return self.core.find(topic, source, start, stop, bytes_max)

    def local_publisher(
        self,
        name: str,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
    ) -> LocalPublisher:
        """Publishes batches that have a source and seqs already; to be opened."""
        return LocalPublisher(
            name,
            on_durable,
            on_gap,
            on_refused,
            handler=self,
            config=self.config,
            report_loss=self._losses.skip,
        )

    def _on_durable(self, number: int, end: int) -> None:
        """A commit ended: the events that it covers are acknowledged and delivered."""
        intake = self.core.intake
        was_full = bool(intake.stopped)
        try:
            self.core.durable(number, end, self._now())
        except Exception as error:
            self._containment.report("delivering what is durable", error)
        if was_full and not intake.stopped:
            log.warning("the journal takes events again")
        for watcher in self.watchers:
            try:
                watcher()
            except Exception as error:
                self._containment.report("telling a gateway what is durable", error)
        if not self.core.is_committing:  # otherwise the core goes on with it when the commit returns
            self.run_machines()
        if self._paused:
            paused, self._paused = self._paused, {}
            for peer in paused:
                peer.release(Hold.JOURNAL)

    def _on_failed(self, error: JournalError) -> None:
        """The journal can't store more: publishers are told to wait, and nothing durable is lost."""
        if not self.core.intake.is_full:
            log.error("intake stopped: %s", error)
        if self.journal.problem and self.config.journal.failed_sync == "exit":
            self.is_broken.set()
        self.core.failed(error, self._now())
        self.run_machines()

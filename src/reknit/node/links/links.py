"""Links between nodes: gives the machine in `reknit.protocol.links` connections, a journal and a file for its memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, assert_never

from reknit import environment
from reknit.batch import Batch
from reknit.config import Config
from reknit.entries import Removed
from reknit.ledger import QUEUES
from reknit.node.core.core import Core
from reknit.node.links.link_connections import IncomingLink, LinkConnection
from reknit.node.links.outgoing import OutgoingLinks
from reknit.node.links.stores import NeighbourStores
from reknit.node.peers.peers import PeerState
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.replication.state_file import StateFile
from reknit.outcome import Code
from reknit.protocol.anycast.inputs import RoutesChanged
from reknit.protocol.dispatch.inputs import PeerBlocked
from reknit.protocol.links.followed_topics import FollowedTopics
from reknit.protocol.links.forwarding_table import ForwardingTable, Origins
from reknit.protocol.links.inputs import (
    BatchStored,
    CloseLine,
    ContinueSoon,
    DismissLine,
    Effect,
    EventsLost,
    LineBlocked,
    LineLost,
    LineOpened,
    LinkNote,
    LossesRecorded,
    OpenStore,
    Pass,
    RecordLosses,
    RequestForwarded,
    SaveLinks,
    SendFrames,
    SendOnLine,
    StoreBatches,
    StoreOpened,
)
from reknit.protocol.links.machine import LinkMachine
from reknit.protocol.links.memory import LinkMemory
from reknit.protocol.machine import JOURNAL, MadeDurable, Peer, PeerLeft
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.protocol.recovery.loss_reports import NeverArrives
from reknit.protocol.routing.routes import Routes
from reknit.wire.codec import Item
from reknit.wire.links import Link

log = logging.getLogger("reknit.node")

FILE: Final = "links.json"
FOLLOWED_AT_ONCE_MAX: Final = 256
"""Up to so many followed patterns are saved when one is added; more are saved after a moment."""


class Links:
    """All links of one node: a part of its core."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        epoch: str,
        urls: Sequence[str],
        core: Core,
        distribution: Callable[[str], str],
        make_publisher: MakePublisher,
        run_machines: Callable[[], None],
        run_soon: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        settings = config.links
        instance = environment.time_us() * 1000
        self._file = StateFile(config, FILE, LinkMemory)
        self._file.value.forget_nodes(core.now_us() - int(settings.remember_s * 1e6))
        self.routes = Routes(
            node_name,
            instance,
            settings.beat_s,
            settings.timeout_s,
            settings.edge,
            settings.nodes_max,
            self._file.value.nodes,
        )
        self._cost = settings.cost
        self._core = core
        self._run_machines = run_machines
        self._run_soon = run_soon
        self._now = clock
        self.followed = FollowedTopics(self._file.value.followed, config.http.follow_s, self._followed_more)
        self.followed.resume(clock())
        self.machine = LinkMachine(
            settings=settings,
            introduce=lambda cost: Link(
                node_name, instance, cost, settings.edge, list(urls), epoch, confirms=True
            ),
            epoch=epoch,
            routes=self.routes,
            table=ForwardingTable(
                routes=self.routes,
                queues=core.dispatch.queues,
                ledger=core.journal.ledger,
                origins=Origins(
                    self._file.value.origins,
                    node_name,
                    {source for _, source in core.journal.ledger.published},
                    self.routes.known,
                ),
                distribution=distribution,
                followed=self.followed,
                linger_s=settings.heal_s,
            ),
            memory=self._file.value,
            journal=core.tail,
            now_us=core.now_us,
        )
        self.outgoing = OutgoingLinks(
            config=config,
            node_name=node_name,
            owner=self,
            added=self._file.value.added,
            save=self._file.save,
        )
        self._stores = NeighbourStores(
            config=config,
            node_name=node_name,
            make_publisher=make_publisher,
            on_opened=self._store_opened,
            on_stored=self._stored,
        )
        self._by_id: dict[Peer, LinkConnection] = {}
        self._recording: deque[tuple[int, str, LossesRecorded]] = deque()
        """(number, neighbour, input): losses that are recorded when everything up to the number is durable."""

    async def stop(self) -> None:
        """Disconnect from all."""
        await self.outgoing.stop()
        await self._stores.close()
        self._file.close()

    def _followed_more(self) -> None:
        """A reader follows topics that none did before: linked nodes are told, and it outlasts a crash."""
        self.machine.table.subscriptions_changed()
        if len(self._file.value.followed) <= FOLLOWED_AT_ONCE_MAX:
            self._file.save()
        else:
            self._file.save_soon()
        self._run_soon()

    # -- connections that this node opens

    def opened(self, connection: LinkConnection) -> None:
        """The other node is there, or there again."""
        self._by_id[connection.id] = connection
        self.machine.receive(LineOpened(connection.cost), connection.id, self._now())
        self._run_machines()

    def lost(self, connection: LinkConnection) -> None:
        """The connection broke."""
        if self._by_id.pop(connection.id, None) is not None:
            self.machine.receive(LineLost(), connection.id, self._now())
            self._run_machines()

    def received(self, items: list[Item], connection: LinkConnection) -> None:
        """Messages and batches came in."""
        now = self._now()
        for item in items:
            self.machine.receive(item, connection.id, now)
        self._run_machines()

    # -- connections that other nodes open

    def __contains__(self, peer_id: int) -> bool:
        """Whether a peer is a node that has begun to link to this one."""
        return peer_id in self.machine.lines

    def take(self, item: Item, peer: PeerState, now: float) -> None:
        """A node that connected to this one sent a message or batches."""
        if peer.id not in self._by_id:
            self._by_id[peer.id] = IncomingLink(peer, self._cost)
        self.machine.receive(item, peer.id, now)

    # -- a part of the core

    @property
    def is_due(self) -> bool:
        """Whether `perform` has something to do."""
        return self.machine.has_effects

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """From another part, the journal or a connection."""
        match message:
            case PeerLeft():
                self.machine.table.peer_left()
                if self._by_id.pop(peer, None) is not None:
                    self.machine.receive(LineLost(), peer, now)
            case MadeDurable(number=number):
                while self._recording and self._recording[0][0] <= number:
                    _, name, recorded = self._recording.popleft()
                    self.machine.receive(recorded, name, now)
                self.machine.receive(message, peer, now)
            case PeerBlocked(is_blocked=is_blocked):
                if peer in self._by_id:
                    self.machine.receive(LineBlocked(is_blocked), peer, now)
            case _:
                self.machine.receive(message, peer, now)

    def tick(self, now: float) -> None:
        """Time passed."""
        self.machine.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return self.machine.next_deadline()

    def perform(self, now: float) -> None:
        """Perform the machine's effects."""
        for effect in self.machine.take_effects():
            self._perform(effect, now)

    def _perform(self, effect: Effect, now: float) -> None:
        match effect:
            case SendFrames() | SendOnLine() | DismissLine() | CloseLine():
                connection = self._by_id.get(effect.line)
                if connection is not None:
                    connection.perform(effect)
            case Pass(message=message, peer=peer):
                if isinstance(message, RoutesChanged):
                    self._review_queues(now)
                self._core.parts.give(message, peer, now)
            case OpenStore(name=name, line=line):
                self._stores.open(name, self._url(line))
            case StoreBatches(name=name, batches=batches):
                self._stores.put(name, batches)
            case RecordLosses():
                self._record(effect, now)
            case RequestForwarded(head=head):
                self._core.responses.forwarded(head)
            case SaveLinks(is_urgent=is_urgent):
                if is_urgent:
                    self._file.save()
                else:
                    self._file.save_soon()
            case ContinueSoon():
                self._run_soon()
            case LinkNote(level=level, text=text):
                log.log(level, "%s", text)
            case _:
                assert_never(effect)

    # -- events of neighbours

    def _record(self, effect: RecordLosses, now: float) -> None:
        text = f"{effect.name} removed it before it was carried over the link"
        for one in effect.losses:
            series = (one.topic, one.source)
            for start, stop in self._core.journal.ledger.existing(series).missing(one.start, one.stop):
                self.machine.receive(EventsLost(Removed(*series, start, stop)), effect.name, now)
            self._core.recovery.receive(NeverArrives(series, one.start, one.stop, text), JOURNAL, now)
        self._recording.append((self._core.recovery.mark(), effect.name, LossesRecorded(effect.number)))

    def _store_opened(self, name: str) -> None:
        self.machine.receive(StoreOpened(), name, self._now())
        self._run_soon()

    def _stored(self, name: str, batch: Batch) -> None:
        self.machine.receive(BatchStored(batch), name, self._now())
        self._run_soon()

    # -- questions

    def knows(self, node: str) -> bool:
        """Whether a node is or was linked with this one, directly or over others: its events come over links."""
        return node in self.routes.known

    def origin(self, source: bytes) -> str:
        """The node on which a source is published, as far as is known."""
        return self.machine.table.origins.of(source)

    def followed_since(self, patterns: Iterable[str]) -> int | None:
        """The position from which on everything on these topics came here from linked nodes without a break.

        None if they are not followed. A node that never had a link has everything that there is.
        """
        if not self._file.value.first:
            return 0
        found = [self.followed.since(pattern) for pattern in patterns]
        return None if None in found else max((since for since in found if since is not None), default=0)

    def queue_node(self, account: str) -> str:
        """The other node that has a queue, with its address if that is known; empty if this one may serve it.

        If two nodes have it, because they were not linked when it was opened, the one whose name comes first serves it.
        """
        is_here = account in self._core.journal.ledger.accounts
        nodes = self.routes.queue_nodes(account)
        name = next((node for node in nodes if not is_here or node < self.routes.name), "")
        return f"{name!r} ({url})" if (url := self.url(name)) else repr(name) if name else ""

    def _review_queues(self, now: float) -> None:
        """End the members of queues that another node has, too: nothing is processed twice unnoticed."""
        for queue in list(self._core.dispatch.queues.values()):
            if isinstance(queue, SharedQueue) and (node := self.queue_node(queue.name)):
                text = f"queue {queue.name.removeprefix(QUEUES)!r} is on node {node}, too: connect there"
                log.error("%s; what it still has here is not delivered", text)
                for key in list(queue.members):
                    self._core.end_subscription(key, Code.FAILED_PRECONDITION, text, now)

    def connection(self, name: str) -> LinkConnection | None:
        """The one in use to a neighbour, if it is connected."""
        line = self.machine.lines.first(name)
        return self._by_id.get(line.id) if line is not None else None

    def connections(self) -> list[LinkConnection]:
        """The connections that are in use, one to each neighbour."""
        found = (self.connection(name) for name in sorted(self.machine.lines.neighbours()))
        return [connection for connection in found if connection is not None]

    def is_linked(self, connection: LinkConnection) -> bool:
        """Whether the other node of a connection has introduced itself."""
        line = self.machine.lines.get(connection.id)
        return line is not None and bool(line.name)

    def url(self, name: str) -> str:
        """The address of a neighbour."""
        line = self.machine.lines.first(name)
        return self._url(line.id) if line is not None else ""

    def _url(self, id: Peer) -> str:
        connection, line = self._by_id.get(id), self.machine.lines.get(id)
        if connection is None:
            return ""
        return connection.url(line.hello.urls if line is not None and line.hello is not None else [])

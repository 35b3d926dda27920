"""Replication over a node's links, by neighbour: events to each of them, and from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.batch import Batch, Head
from reknit.config import Config
from reknit.node.core.journal_tail import JournalTail
from reknit.node.links.forwarding_table import ForwardingTable
from reknit.node.links.link_connections import LinkConnection
from reknit.node.links.positions import NeighbourPositions
from reknit.node.links.replication import IncomingReplication, OutgoingReplication
from reknit.node.replication.local_publisher import MakePublisher
from reknit.store.journal import Journal
from reknit.wire.links import Carry, Pull


class Flows:
    """All flows of one node. They stay while a link is down, and resume when it is up again."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        epoch: str,
        journal: Journal,
        tail: JournalTail,
        table: ForwardingTable,
        positions: NeighbourPositions,
        make_publisher: MakePublisher,
        on_forwarded: Callable[[Head], None],
        current: Callable[[str], LinkConnection | None],
        pump_soon: Callable[[], None],
    ) -> None:
        self._config = config
        self._node_name = node_name
        self._epoch = epoch
        self._journal = journal
        self._tail = tail
        self._table = table
        self._positions = positions
        self._make_publisher = make_publisher
        self._on_forwarded = on_forwarded
        self._current = current
        """The connection to a neighbour, if there is one."""
        self._pump_soon = pump_soon
        """Have `pump` called in the next turn."""
        self._outgoing: dict[str, OutgoingReplication] = {}
        self._incoming: dict[str, IncomingReplication] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Take in no more events."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for incoming in self._incoming.values():
            await incoming.stop()

    # -- links come and go

    def up(self, name: str, journal: str) -> None:
        """A neighbour with this journal is connected, and may request events."""
        first = self._positions.first_linked(name, journal, self._epoch, self._journal.end)
        if name in self._outgoing:
            self._outgoing[name].up(first)
        else:
            self._outgoing[name] = OutgoingReplication(
                name,
                settings=self._config.links,
                epoch=self._epoch,
                journal=self._journal,
                tail=self._tail,
                table=self._table,
                on_forwarded=self._on_forwarded,
                pump_soon=self._pump_soon,
                first=first,
            )

    def pull(self, name: str, connection: LinkConnection) -> None:
        """Request from a neighbour the events that were missed."""
        incoming = self._incoming.get(name)
        if incoming is not None:
            incoming.pull(connection)
            return
        incoming = self._incoming[name] = IncomingReplication(
            name,
            connection.url,
            config=self._config,
            node_name=self._node_name,
            make_publisher=self._make_publisher,
            positions=self._positions,
            learn_origin=self._table.origins.learn,
            on_received=self._outgoing[name].came,
        )
        task = asyncio.create_task(self._open(incoming, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, incoming: IncomingReplication, connection: LinkConnection) -> None:
        await incoming.start()
        if self._current(connection.name) is connection:
            incoming.pull(connection)

    def down(self, name: str) -> None:
        """A neighbour is not connected any more."""
        self._outgoing[name].stop()

    # -- events

    def take(self, name: str, carry: Carry, batches: list[Batch], is_last: bool) -> None:
        """A neighbour sent events."""
        self._incoming[name].take(carry, batches, is_last)

    def pulled(self, name: str, wanted: Pull, connection: LinkConnection) -> None:
        """A neighbour requests events from a position on."""
        self._outgoing[name].pull(wanted, connection)

    def got(self, name: str, position: int) -> None:
        """A neighbour acknowledges that it has stored everything up to a position."""
        self._outgoing[name].got(position)

    def pump(self) -> None:
        """More of the journal is durable: send it to the neighbours that want it."""
        for outgoing in self._outgoing.values():
            outgoing.pump()

    def look_back(self) -> None:
        """Routes changed: another node may have been meant to send recent events, and be gone."""
        for outgoing in self._outgoing.values():
            outgoing.look_back()

    # -- figures

    def sent(self, name: str) -> int:
        """How many events went to a neighbour."""
        return self._outgoing[name].events if name in self._outgoing else 0

    def received(self, name: str) -> int:
        """How many events came from a neighbour."""
        return self._incoming[name].events if name in self._incoming else 0

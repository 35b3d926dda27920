"""What flows over a node's links of events that everyone gets: to each neighbour, and from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.node.links.link_connections import Line
from reknit.node.links.replication import Inflow, Outflow
from reknit.wire.links import Carry, Pull

if TYPE_CHECKING:
    from reknit.node.links.links import Links


class Flows:
    """All of one node, by neighbour. They stay while a link is down, and go on when it is back."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._outflows: dict[str, Outflow] = {}
        self._inflows: dict[str, Inflow] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Take no more in."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for inflow in self._inflows.values():
            await inflow.stop()

    # -- links come and go

    def make(self, name: str) -> None:
        """A neighbour is there, and may ask."""
        if name not in self._outflows:
            self._outflows[name] = Outflow(self._links, name)

    def pull(self, name: str, line: Line) -> None:
        """Ask a neighbour for what was missed."""
        inflow = self._inflows.get(name)
        if inflow is not None:
            inflow.pull(line)
            return
        inflow = self._inflows[name] = Inflow(self._links, name, line.url)
        task = asyncio.create_task(self._open(inflow, line))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, inflow: Inflow, line: Line) -> None:
        await inflow.start()
        if self._links.line(line.name) is line:
            inflow.pull(line)

    def down(self, name: str) -> None:
        """A neighbour is not there any more."""
        self._outflows[name].stop()

    # -- events

    def take(self, name: str, carry: Carry, batches: list[Batch], is_last: bool) -> None:
        """A neighbour sent events."""
        self._inflows[name].take(carry, batches, is_last)

    def came(self, stream: Stream, stop: int, name: str) -> None:
        """Events of a stream came from a neighbour."""
        self._outflows[name].came(stream, stop)

    def pulled(self, name: str, wanted: Pull, line: Line) -> None:
        """A neighbour says from where on it wants events."""
        self._outflows[name].pull(wanted, line)

    def got(self, name: str, position: int) -> None:
        """… and up to where it has kept them."""
        self._outflows[name].got(position)

    def pump(self) -> None:
        """More of the journal is durable: it may be wanted elsewhere."""
        for outflow in self._outflows.values():
            outflow.pump()

    def look_back(self) -> None:
        """Ways changed: somebody else may have been meant to send what came lately, and be gone."""
        for outflow in self._outflows.values():
            outflow.look_back()

    # -- questions

    def sent(self, name: str) -> int:
        """How many events went to a neighbour."""
        return self._outflows[name].events if name in self._outflows else 0

    def received(self, name: str) -> int:
        """How many events came from a neighbour."""
        return self._inflows[name].events if name in self._inflows else 0

    def position(self, name: str) -> tuple[str, int]:
        """A neighbour's journal, and the position there up to which everything is kept here; -1 at first."""
        return self._links.notes.value.positions.get(name, ("", -1))

    def remember(self, name: str, epoch: str, position: int) -> None:
        """Everything from a neighbour's journal up to this position is kept here."""
        is_known = self.position(name)[0] == epoch
        self._links.notes.value.positions[name] = (epoch, position)
        if is_known:
            self._links.notes.save_soon()
        else:
            self._links.notes.save()  # from here on nothing may be missed, whatever happens next

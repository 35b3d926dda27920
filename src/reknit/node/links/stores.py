"""Where the events of neighbours are stored: in this node's journal, by a publisher for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.batch import Batch
from reknit.config import Config
from reknit.node.replication.gap_filler import GapFiller
from reknit.node.replication.local_publisher import MakePublisher


class NeighbourStore:
    """Stores the events of one neighbour. Gaps are recovered from its journal, as in a relay."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        config: Config,
        node_name: str,
        make_publisher: MakePublisher,
        on_stored: Callable[[str, Batch], None],
    ) -> None:
        self._gaps = GapFiller(url, node_name, config=config, fill=lambda *gap: self._publisher.fill(*gap))
        self._publisher = make_publisher(
            f"link/{name}",
            lambda batch: on_stored(name, batch),
            self._gaps.recover,
            # A batch that this node refuses is a dead letter here: what follows it must not wait for it.
            lambda batch, code, text: on_stored(name, batch),
        )
        self.put = self._publisher.put

    async def open(self) -> None:
        """Connect to this node's journal."""
        await self._publisher.open()

    async def close(self) -> None:
        """Store no more events."""
        await self._gaps.close()
        await self._publisher.close()


class NeighbourStores:
    """The stores of one node. They stay while a link is down: a connection within the process does not break."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        make_publisher: MakePublisher,
        on_opened: Callable[[str], None],
        on_stored: Callable[[str, Batch], None],
    ) -> None:
        self._config = config
        self._node_name = node_name
        self._make_publisher = make_publisher
        self._on_opened = on_opened
        self._on_stored = on_stored
        self._stores: dict[str, NeighbourStore] = {}
        self._opening: set[asyncio.Task[None]] = set()

    def open(self, name: str, url: str) -> None:
        """Prepare to store the events of a neighbour, whose address is `url`."""
        store = self._stores[name] = NeighbourStore(
            name,
            url,
            config=self._config,
            node_name=self._node_name,
            make_publisher=self._make_publisher,
            on_stored=self._on_stored,
        )
        task = asyncio.create_task(self._open(name, store))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, name: str, store: NeighbourStore) -> None:
        await store.open()
        self._on_opened(name)

    def put(self, name: str, batches: list[Batch]) -> None:
        """Store batches of a neighbour."""
        self._stores[name].put(batches)

    async def close(self) -> None:
        """Store no more events."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for store in self._stores.values():
            await store.close()

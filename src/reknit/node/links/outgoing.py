"""The links that a node opens itself: those of its configuration, and those that were added at run time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from reknit.config import Config
from reknit.errors import Refused
from reknit.node.links.checks import parse_link
from reknit.node.links.link_connections import LinkOwner, OutgoingLink
from reknit.outcome import Code
from reknit.transport.tcp import parse_url


class OutgoingLinks:
    """All outgoing links of one node, connected or not. `added` outlasts a restart, as `save` writes it."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        owner: LinkOwner,
        added: dict[str, int],
        save: Callable[[], None],
    ) -> None:
        self._config = config
        self._settings = config.links
        self._node_name = node_name
        self._owner = owner
        self._added = added
        self._save = save
        self._connections: dict[str, OutgoingLink] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._count = 0

    def __iter__(self) -> Iterator[OutgoingLink]:
        return iter(self._connections.values())

    def start(self) -> None:
        """Link to the nodes that the configuration names, and to those that were added before.

        A configured link that was removed and added again is among both, and has the cost that it was given then. The
        node listens by now, so a client may have added one of them already.
        """
        configured = dict(parse_link(text, self._settings.cost) for text in self._settings.to)
        for url, cost in {**configured, **self._added}.items():
            if url not in self._connections:
                self.add(url, cost, is_lasting=False)

    async def stop(self) -> None:
        """Disconnect from all of them."""
        await asyncio.gather(*(one.stop() for one in self._connections.values()))
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def add(self, url: str, cost: int, is_lasting: bool = True) -> None:
        """Link to a node, now and whenever it is reachable. Raises `InvalidConfig`, `Refused`."""
        parse_url(url)
        if url in self._connections:
            raise Refused(Code.ALREADY_EXISTS, f"a link to {url} exists already")
        if self._settings.edge and self._connections:
            raise Refused(Code.FAILED_PRECONDITION, "an edge node has at most one link (links.edge)")
        self._count += 1
        connection = self._connections[url] = OutgoingLink(
            self._count, url, cost, node_name=self._node_name, config=self._config, owner=self._owner
        )
        connection.start()
        if is_lasting:
            self._added[url] = cost
            self._save()  # before that is answered

    def remove(self, url: str) -> None:
        """Remove the link to a node. Raises `Refused`."""
        connection = self._connections.pop(url, None)
        if connection is None:
            raise Refused(Code.NOT_FOUND, f"there is no link to {url}: `reknit link list` shows all links")
        task = asyncio.create_task(connection.stop())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        self._added.pop(url, None)
        self._save()

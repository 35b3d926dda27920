"""The links that a node opens itself: those of its configuration, and those that were added while it ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reknit.errors import Refused
from reknit.node.links.checks import parse_link
from reknit.node.links.link_connections import LineOut
from reknit.outcome import Code
from reknit.transport.tcp import parse_url

if TYPE_CHECKING:
    from reknit.node.links.links import Links


class OutgoingLinks:
    """All of one node, whether they stand or not."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._settings = links.config.links
        self._lines: dict[str, LineOut] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[LineOut]:
        return iter(self._lines.values())

    def start(self) -> None:
        """Link to whom the configuration names, and to whom was added before."""
        for text in self._settings.to:
            self.add(*parse_link(text, self._settings.cost), is_lasting=False)
        for url, cost in self._links.notes.value.added.items():
            self.add(url, cost, is_lasting=False)

    async def stop(self) -> None:
        """Part from all of them."""
        await asyncio.gather(*(line.stop() for line in self._lines.values()))
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def add(self, url: str, cost: int, is_lasting: bool = True) -> None:
        """Link to a node, now and whenever it is there. Raises `InvalidConfig`, `Refused`."""
        parse_url(url)
        if url in self._lines:
            raise Refused(Code.ALREADY_EXISTS, f"there is a link to {url} already")
        if self._settings.edge and self._lines:
            raise Refused(Code.FAILED_PRECONDITION, "an edge has one link at most (links.edge)")
        self._links.is_on = True
        line = self._lines[url] = LineOut(self._links, url, cost, self._links.hello)
        line.start()
        if is_lasting:
            self._links.notes.value.added[url] = cost
            self._links.notes.save_soon()

    def remove(self, url: str) -> None:
        """Link to a node no more. Raises `Refused`."""
        line = self._lines.pop(url, None)
        if line is None:
            raise Refused(Code.NOT_FOUND, f"there is no link to {url}: `reknit link list` has all")
        task = asyncio.create_task(line.stop())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        self._links.notes.value.added.pop(url, None)
        self._links.notes.save_soon()

    def ask_add(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """`add`, for who asks over a connection."""
        url, cost = parse_link(str(args["to"]), self._settings.cost)
        self.add(url, cost)
        return self._links.rows()

    def ask_remove(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """`remove`, for who asks over a connection."""
        self.remove(parse_link(str(args["to"]))[0])
        return self._links.rows()

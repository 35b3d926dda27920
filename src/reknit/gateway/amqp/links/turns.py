"""Turns: the links of a connection do their work once, at the end of each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol


class TurnLink(Protocol):
    """A link, as a turn uses it."""

    def flush(self) -> None:
        """Pass on the outcomes that have gathered."""

    def work(self) -> None:
        """Read messages that have arrived, or send queued events."""


class LinkTurns:
    """The links of one connection that have work to do when the turn ends. `run` is the turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
        self._loop = loop
        self._run = run
        self._is_due = False
        self._links: dict[TurnLink, None] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._links)

    def add(self, link: TurnLink) -> None:
        """The link has work to do when the turn ends."""
        self._links[link] = None

    def add_all(self, links: Iterable[TurnLink]) -> None:
        """All these links have work to do."""
        self._links.update(dict.fromkeys(links))

    def remove(self, link: TurnLink) -> None:
        """The link is gone."""
        self._links.pop(link, None)

    def clear(self) -> None:
        """All links are gone."""
        self._links.clear()

    def wake(self) -> None:
        """Run a turn soon."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def begin(self) -> None:
        """A turn runs now."""
        self._is_due = False

    def flush(self) -> None:
        """Let links pass on their outcomes."""
        for link in self._links:
            link.flush()

    def work(self) -> None:
        """Let links read and send. Links that are not done add themselves again."""
        links, self._links = self._links, {}
        for link in links:
            link.work()

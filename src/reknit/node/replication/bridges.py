"""Bridges: routes, added and deleted at run time, that copy events of one authority to another in one direction.

Each is a `reknit.node.replication.bridge`. This module keeps the list of bridges, also over a restart,
and tracks the sources that arrive over the bridges of other nodes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.errors import InvalidTopic, LocalError, Refused
from reknit.node.replication.bridge import HERE, Bridge, Route
from reknit.node.replication.state_file import Notes
from reknit.node.replication.visited_nodes import Vias
from reknit.outcome import Code
from reknit.topic import Pattern, check_topic
from reknit.transport.tcp import parse_url
from reknit.wire.links import Skip

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

FILE: Final = "routes.json"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_topic(text: str) -> bool:
    """Whether it is one.

    >>> is_topic("plant/temp"), is_topic("plant//temp")
    (True, False)
    """
    try:
        check_topic(text)
    except InvalidTopic:
        return False
    return True


class Kept(msgspec.Struct):
    """What outlasts a restart."""

    routes: list[Route] = []
    vias: dict[str, list[str]] = {}


class Bridges:
    """All routes of one node; `node.bridges`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._notes = Notes(node.config, FILE, Kept)
        self.vias = Vias(self._notes.value.vias, self._notes.save_soon)
        self._bridges: dict[Route, Bridge] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Take up the routes that there were."""
        for route in self._notes.value.routes:
            self._begin(route)

    async def stop(self) -> None:
        """Stop them; they go on when the node does."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        for bridge in self._bridges.values():
            await bridge.stop()
        self._notes.close()

    def _begin(self, route: Route) -> Bridge:
        bridge = self._bridges[route] = Bridge(self.node, route)
        bridge.begin()
        return bridge

    # -- routes

    async def add_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Pass on what is published at one authority from now on to another. Raises `Refused`."""
        route = self._checked(source, target, pattern)
        if route in self._bridges:
            raise Refused(Code.ALREADY_EXISTS, f"there is a route {route.name}")
        self._notes.value.routes.append(route)
        self._notes.save()
        await self._begin(route).begun()

    def delete_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Pass on no more. Raises `Refused`."""
        route = self._checked(source, target, pattern)
        bridge = self._bridges.pop(route, None)
        if bridge is None:
            raise Refused(Code.NOT_FOUND, f"there is no route {route.name}: `reknit route list` has all")
        self._notes.value.routes.remove(route)
        self._notes.save()
        task = asyncio.create_task(bridge.forget())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _checked(self, source: str, target: str, pattern: str) -> Route:
        try:
            ends = self._authority(source), self._authority(target)
            text = Pattern(pattern).text
        except LocalError as error:
            raise Refused(Code.INVALID_ARGUMENT, str(error)) from None
        if ends[0] == ends[1]:
            raise Refused(Code.INVALID_ARGUMENT, f"{source} and {target} are the same authority")
        return Route(source, target, text)

    def _authority(self, end: str) -> str:
        """What names one end, whichever way it is written."""
        if end == HERE:
            return HERE
        _, host, port = parse_url(end)
        name = f"{'loopback' if host in LOOPBACK else host.lower()}:{port}"
        own = {self._named(url) for url in self.node.urls if url.startswith(("tcp:", "tls:"))}
        return HERE if name in own else name

    @staticmethod
    def _named(url: str) -> str:
        _, host, port = parse_url(url)
        return f"{'loopback' if host in LOOPBACK else host.lower()}:{port}"

    def rows(self) -> list[dict[str, Any]]:
        """Every route, for people."""
        return [
            {
                "in": route.source,
                "out": route.target,
                "pattern": route.pattern,
                "events": bridge.events,
                "waiting_bytes": bridge.waiting_bytes,
                "problem": bridge.problem,
            }
            for route, bridge in sorted(self._bridges.items())
        ]

    async def ask_add(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Add a route, for who asks over a connection; gives all that there are then."""
        await self.add_route(*_ends(args))
        return self.rows()

    async def ask_delete(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """… or delete one."""
        self.delete_route(*_ends(args))
        return self.rows()

    # -- what comes over others' bridges

    def skipped(self, skip: Skip) -> None:
        """A bridge tells that events are lost where they come from: that is booked here, too."""
        if is_topic(skip.topic) and 0 < skip.start < skip.stop:
            self.node.caches.skips.skip((skip.topic, skip.source), skip.start, skip.stop, skip.text)


def _ends(args: dict[str, Any]) -> tuple[str, str, str]:
    return str(args["in"]), str(args["out"]), str(args.get("pattern", "**"))

"""Bridges: routes, added and deleted at run time, that copy events of one authority to another in one direction.

Each is a `reknit.node.replication.bridge`. This module keeps the list of bridges, also across a restart,
and tracks the sources that arrive over the bridges of other nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from reknit.config import Config
from reknit.errors import InvalidTopic, LocalError, Refused
from reknit.node.replication.bridge import HERE, Bridge, BridgeRoute
from reknit.node.replication.local_publisher import ReportLoss
from reknit.node.replication.remote_session import ConnectSession
from reknit.node.replication.replicator import Runner
from reknit.node.replication.state_file import StateFile
from reknit.node.replication.visited_nodes import VisitedNodes
from reknit.outcome import Code
from reknit.topic import Pattern, check_topic
from reknit.transport.connection import Handler
from reknit.transport.tcp import parse_url
from reknit.transport.unix import UNIX
from reknit.wire.links import Skip

FILE: Final = "routes.json"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_topic(text: str) -> bool:
    """Whether a text is a valid topic.

    >>> is_topic("plant/temp"), is_topic("plant//temp")
    (True, False)
    """
    try:
        check_topic(text)
    except InvalidTopic:
        return False
    return True


class BridgeState(msgspec.Struct):
    """The content of `routes.json`, which outlasts a restart."""

    routes: list[BridgeRoute] = []
    vias: dict[str, list[str]] = {}


class Bridges:
    """All routes of one node; `node.bridges`."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        urls: Sequence[str],
        handler: Handler,
        runner: Runner,
        connect: ConnectSession,
        report_loss: ReportLoss,
    ) -> None:
        self._config = config
        self._node_name = node_name
        self._urls = urls
        """Where this node listens; the list is filled when it does."""
        self._handler = handler
        self._connect = connect
        self._runner = runner
        self._report_loss = report_loss
        self._file = StateFile(config, FILE, BridgeState)
        self.visited = VisitedNodes(self._file.value.vias, self._file.save_soon, node_name=node_name)
        self._bridges: dict[BridgeRoute, Bridge] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Resume the routes that there were."""
        for route in self._file.value.routes:
            if route not in self._bridges:  # the node listens by now, so a client may have added it just now
                self._begin(route)

    async def stop(self) -> None:
        """Stop them; they resume when the node starts again."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        for bridge in self._bridges.values():
            await bridge.stop()
        self._file.close()

    def _begin(self, route: BridgeRoute) -> Bridge:
        bridge = self._bridges[route] = Bridge(
            route,
            config=self._config,
            node_name=self._node_name,
            handler=self._handler,
            runner=self._runner,
            connect=self._connect,
        )
        bridge.begin()
        return bridge

    # -- routes

    async def add_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Copy events that are published at one authority from now on to another. Raises `Refused`."""
        route = self._checked(source, target, pattern)
        if route in self._bridges:
            raise Refused(Code.ALREADY_EXISTS, f"route {route.name} exists already")
        self._file.value.routes.append(route)
        self._file.save()
        await self._begin(route).begun()

    def delete_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Delete a route, and the subscription for it at its source. Raises `Refused`."""
        route = self._checked(source, target, pattern)
        bridge = self._bridges.pop(route, None)
        if bridge is None:
            raise Refused(
                Code.NOT_FOUND, f"there is no route {route.name}: `reknit route list` shows all routes"
            )
        self._file.value.routes.remove(route)
        self._file.save()
        task = asyncio.create_task(bridge.forget())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _checked(self, source: str, target: str, pattern: str) -> BridgeRoute:
        try:
            ends = self._authority(source), self._authority(target)
            text = Pattern(pattern).text
        except LocalError as error:
            raise Refused(Code.INVALID_ARGUMENT, str(error)) from None
        if ends[0] == ends[1]:
            raise Refused(Code.INVALID_ARGUMENT, f"{source} and {target} are the same authority")
        return BridgeRoute(source, target, text)

    def _authority(self, end: str) -> str:
        """One name for one end, however its address is written."""
        if end == HERE:
            return HERE
        name = _host_and_port(end)
        own = {_host_and_port(url) for url in self._urls if url.startswith(("tcp:", "tls:"))}
        return HERE if name in own else name

    # -- admin requests

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

    def status(self) -> dict[str, int]:
        """How many sources came over bridges, and how many could not be remembered."""
        return self.visited.status()

    async def ask_add(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Add a route, for an admin request; returns all routes."""
        await self.add_route(*_ends(args))
        return self.rows()

    async def ask_delete(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Delete a route, for an admin request; returns the routes that are left."""
        self.delete_route(*_ends(args))
        return self.rows()

    # -- bridges of other nodes

    def skipped(self, skip: Skip) -> bool:
        """A bridge reports that events are lost where they come from: that is recorded here, too, if it is valid."""
        is_valid = is_topic(skip.topic) and 0 < skip.start < skip.stop
        if is_valid:
            self._report_loss((skip.topic, skip.source), skip.start, skip.stop, skip.text)
        return is_valid


def _host_and_port(url: str) -> str:
    if url.startswith(UNIX):
        return url
    _, host, port = parse_url(url)
    return f"{'loopback' if host in LOOPBACK else host.lower()}:{port}"


def _ends(args: dict[str, Any]) -> tuple[str, str, str]:
    return str(args["in"]), str(args["out"]), str(args.get("pattern", "**"))

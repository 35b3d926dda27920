"""The HTTP server inside a node: on the node's loop, over the node's journal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from reknit.config import HttpSettings
from reknit.errors import InvalidConfig, ReknitError
from reknit.gateway.http.access import Access, from_settings
from reknit.gateway.http.cloudevents import PATH, CloudEvents
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.feed import Feed
from reknit.gateway.http.inlet import Inlet
from reknit.gateway.http.kn import Kn
from reknit.gateway.http.kn_routes import Router
from reknit.gateway.http.requests import Request
from reknit.gateway.http.scope import Scope
from reknit.gateway.http.sse import Streams
from reknit.node.api import GatewayNode
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.reconnect import HeldJournal
from reknit.protocol.tunnel.server import TunnelServer
from reknit.transport.file_limits import files_max

log = logging.getLogger("reknit.http")

TICK_S = 0.5
PLACES_KNOWN_MAX = 10_000

Page = Callable[[HttpConnection, Request], Awaitable[None]]


class HttpServer:
    """Tunnels of one node. `pages` maps a path to what answers it, for whoever wants to add one."""

    def __init__(self, node: GatewayNode, access: Access | None = None) -> None:
        self.node = node
        self.settings: HttpSettings = node.config.http
        self.access: Access = access or from_settings(self.settings)
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.rng = random.Random()
        self.connections: dict[HttpConnection, None] = {}
        self.reading: dict[HttpConnection, None] = {}
        """Those whose next request has not come as a whole."""
        settings = self.settings
        self.tunnels = TunnelServer(
            node.epoch,
            node.journal.end,
            settings.tunnels_max,
            settings.tunnels_per_address_max,
            settings.stall_s_max,
        )
        self.feed = Feed(node.journal, node.epoch, self.tunnels)
        self.inlet = Inlet(node, node.name)
        self.router = Router(node.journal, self.feed, self.inlet, settings.populate_events_max)
        streams = Streams(self)
        self.cloudevents = CloudEvents(self)
        self.pages: dict[str, Page] = {
            "/kn": Kn(self).answer,
            "/sse": streams.sse,
            "/ws": streams.websocket,
            PATH: self.cloudevents.answer,
            "/reknit.js": self._script,
            "/": self._index,
        }
        self.url = ""
        self.files_max = files_max()
        """So many files, connections among them, may be open in this process."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._beat_at = 0.0
        self._known: dict[JournalPlace, None] = {}
        self.all_gone = asyncio.Event()
        """Set when the last connection goes."""

    # -- life

    async def start(self) -> None:
        """Listen. Raises `InvalidConfig`."""
        parts = urlsplit(f"//{self.settings.listen}")
        host, port = parts.hostname or "", parts.port or 0
        try:
            self._server = await self.loop.create_server(
                lambda: HttpConnection(self), host, port, backlog=4096
            )
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            text = f"names {self.settings.listen}, which can't be listened on: {why}"
            raise InvalidConfig("http.listen", self.node.config.origin("http.listen"), text) from None
        real = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{real}"
        self._say_room()
        self.node.watchers.append(self.feed.grown)
        self._timer = self.loop.call_later(TICK_S, self._tick)

    def _say_room(self) -> None:
        if self.tunnels_max < self.settings.tunnels_max:
            why = f"{self.files_max:,} files may be open (ulimit -n), {self.settings.files_reserved} are for others"
            text = "room for %s tunnels, not for the %s of http.tunnels_max: %s"
            log.warning(text, f"{self.tunnels_max:,}", f"{self.settings.tunnels_max:,}", why)

    async def stop(self) -> None:
        """Tell every tunnel, close all, and wait until they are gone; not for long."""
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        if self.feed.grown in self.node.watchers:
            self.node.watchers.remove(self.feed.grown)
        for connection in list(self.connections):
            connection.end("the server stops; connect again to go on")
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.all_gone.wait(), self.settings.stop_timeout_s)
        for connection in list(self.connections):
            connection.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cloudevents.close()
        self.inlet.close()

    def _tick(self) -> None:
        now = self.now()
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self.tunnels.tick(now)
        self.feed.perform()
        if now >= self._beat_at:
            self._beat_at = now + self.settings.heartbeat_s / 4
            self.feed.heartbeat(self.settings.heartbeat_s)
        for connection in list(self.reading):
            if now - connection.opened_at < self.settings.request_timeout_s:
                break  # the others are younger
            connection.transport.close()
        self.router.renew()

    # -- room

    @property
    def tunnels_max(self) -> int:
        """So many tunnels there can be at most: as set, or fewer if not so many files may be open."""
        return max(0, min(self.settings.tunnels_max, self.files_max - self.settings.files_reserved))

    def refusal(self, connection: HttpConnection) -> str:
        """Why the connection can't become a tunnel now, or nothing.

        A connection gets the lowest number that is free, so its number tells how many files are open.
        """
        reserved = self.settings.files_reserved
        if connection.fd >= self.files_max - reserved:
            return (
                f"the server may have {self.files_max} files open (ulimit -n), and the last {reserved} are "
                "for others than tunnels (http.files_reserved)"
            )
        return self.tunnels.refusal(connection.address)

    def has_room(self, connection: HttpConnection) -> bool:
        """Whether even a request can be read: half of what tunnels leave is for others than connections."""
        return connection.fd < self.files_max - self.settings.files_reserved // 2

    # -- requests

    def start_page(self, connection: HttpConnection, request: Request) -> None:
        """Answer a request, in its own time."""
        task = self.loop.create_task(self._answer(connection, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: HttpConnection, request: Request) -> None:
        try:
            await self._page(request)(connection, request)
        except ReknitError as error:
            self.say(connection, request, 500, str(error))
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            self.say(connection, request, 500, "the server failed; its log says how")
        connection.next_request()

    def _page(self, request: Request) -> Page:
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            return self._preflight
        path = "/kn" if request.path.startswith("/kn/") else request.path
        return self.pages.get(path, self._missing)

    def say(self, connection: HttpConnection, request: Request, status: int, text: str) -> None:
        """A plain answer in words."""
        headers = [("Content-Type", "text/plain; charset=utf-8"), *self.cors(request)]
        connection.answer(status, headers, f"{text}\n".encode(), request.keep_alive)

    async def _missing(self, connection: HttpConnection, request: Request) -> None:
        self.say(connection, request, 404, f"{request.path} is not here; there are {', '.join(self.pages)}")

    async def _index(self, connection: HttpConnection, request: Request) -> None:
        reading = "Server-Sent Events at /sse?topic=PATTERN, WebSocket at /ws?topic=PATTERN"
        text = f"reknit: mod_pubsub at /kn, {reading}; POST CloudEvents to {PATH}"
        self.say(connection, request, 200, text)

    async def _script(self, connection: HttpConnection, request: Request) -> None:
        body = resources.files("reknit.gateway").joinpath("static", "reknit.js").read_bytes()
        headers = [("Content-Type", "text/javascript; charset=utf-8"), ("Cache-Control", "no-cache")]
        connection.answer(200, [*headers, *self.cors(request)], body, request.keep_alive)

    # -- other sites

    def is_allowed_origin(self, request: Request) -> bool:
        """Whether the page that makes this request may: no page, one of ours, or of a site in http.origins."""
        if "*" in self.settings.origins:
            return True
        origin = request.headers.get("origin", "")
        if not origin:  # a page's plain GET has none, but tells that it comes from elsewhere
            return request.headers.get("sec-fetch-site", "") != "cross-site"
        is_own = urlsplit(origin).netloc == request.headers.get("host", "")
        return is_own or origin in self.settings.origins

    def cors(self, request: Request) -> list[tuple[str, str]]:
        """The headers by which a browser lets a page of another site read the answer."""
        origin = request.headers.get("origin", "")
        if not origin or not self.is_allowed_origin(request):
            return []
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]

    async def _preflight(self, connection: HttpConnection, request: Request) -> None:
        if not self.is_allowed_origin(request):
            self.say(connection, request, 403, "pages of this site may not use this node (http.origins)")
            return
        allowed = [
            ("Access-Control-Allow-Methods", "GET, POST"),
            ("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID, Cache-Control"),
            ("Access-Control-Max-Age", "600"),
        ]
        connection.answer(204, [*self.cors(request), *allowed], b"", request.keep_alive)

    # -- what can be promised

    def held(self, scope: Scope) -> HeldJournal:
        """What the journal holds of a tunnel's topics."""
        journal = self.node.journal

        def is_whole() -> bool:
            topics = [topic for topic in journal.topics() if scope.matches(topic)]
            return all(
                journal.first_held(topic, source) == 1
                for topic in topics
                for source in journal.sources(topic)
            )

        is_new = self.node.config.journal.kind == "memory" or journal.report.missing_bytes
        known_s = time.time() - self.node.started_at if is_new else float("inf")
        return HeldJournal(
            epoch=self.node.epoch,
            start=journal.start,
            end=self.tunnels.position,
            is_whole=is_whole,
            known_s=known_s,
            position_at=lambda age_s: journal.position_at(time.time_ns() // 1000 - int(age_s * 1e6)),
            is_boundary=self._is_boundary,
        )

    def _is_boundary(self, place: JournalPlace) -> bool:
        if place in self._known:
            return True
        is_known = self._find_boundary(place)
        if is_known and len(self._known) < PLACES_KNOWN_MAX:
            self._known[place] = None
        return is_known

    def _find_boundary(self, place: JournalPlace) -> bool:
        """Whether a place came from us. The index decides: bytes that only look like a batch are in none."""
        journal = self.node.journal
        if place.position == journal.end:
            return place.index == 0
        try:
            run = journal.read(place.position, None, 1)
            if not run.entries:
                return place.index == 0
            first = run.entries[0]
            head = first.head
            found = journal.find(head.topic, head.source, head.first, head.first + 1)
        except ReknitError:
            return False
        is_there = any(entry.position == first.position for entry in found)
        return (
            is_there and (place.index == 0 or first.position == place.position) and place.index < head.count
        )

    def status(self) -> dict[str, Any]:
        """How the tunnels are."""
        tunnels = {f"tunnels_{state}": count for state, count in self.tunnels.counts().items()}
        room = {"tunnels_max": self.tunnels_max, "files_max": self.files_max}
        return {"url": self.url, "connections": len(self.connections), **tunnels, **room}

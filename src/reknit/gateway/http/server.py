"""The HTTP server of a node. It runs on the node's event loop, over the node's journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from reknit.config import HttpSettings
from reknit.errors import InvalidConfig
from reknit.gateway.access import Access
from reknit.gateway.budgeted_clients import BudgetedClient
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.http.cloudevents import PATH, CloudEventsPage
from reknit.gateway.http.connection import HttpConnection, HttpServices
from reknit.gateway.http.connections import ConnectionRegistry, OpenHttpConnection
from reknit.gateway.http.feed import TunnelFeed
from reknit.gateway.http.forwarded import TrustedProxies
from reknit.gateway.http.kn.notify import Notifications
from reknit.gateway.http.kn.page import KnPage
from reknit.gateway.http.kn.route_requests import RouteRequests
from reknit.gateway.http.kn.router import KnRouter
from reknit.gateway.http.kn.tunnel import KnTunnels
from reknit.gateway.http.origins import HostPolicy, OriginPolicy
from reknit.gateway.http.pages import Pages
from reknit.gateway.http.pattern_tunnels import PatternTunnels
from reknit.gateway.http.patterns import PatternOpenings
from reknit.gateway.http.promises import JournalPromises
from reknit.gateway.http.publishers import HttpPublishers
from reknit.gateway.http.room import TunnelRoom
from reknit.gateway.http.tickets import PATH as TICKET
from reknit.gateway.http.tickets import TicketPage
from reknit.gateway.publish_pace import PublishPace
from reknit.node.api import GatewayNode
from reknit.protocol.tunnel.server import TunnelServer
from reknit.transport.servers import Server, listen_failure, open_server
from reknit.transport.tls import refusal, server_tls

TICK_S = 0.5


class HttpServer:
    """Listens, and builds the parts. Add a page of your own to `pages.by_path`, or give a hook for access."""

    def __init__(self, node: GatewayNode, access: Access | None = None) -> None:
        settings: HttpSettings = node.config.http
        self.settings = settings
        self.url = ""
        self._node = node
        self._connections = ConnectionRegistry()
        self.tunnels = TunnelServer(
            node.epoch,
            node.journal.end,
            settings.tunnels_max,
            settings.tunnels_per_address_max,
            settings.stall_s_max,
        )
        self.room = TunnelRoom(settings, self.tunnels)
        self.feed = TunnelFeed(node.journal, node.tail, node.epoch, self.tunnels, node.links.followed)
        self.publishers = HttpPublishers(node, node.name, node.epoch)
        self._access = access = access or node.gate
        self.router = KnRouter(
            node.journal,
            access=access,
            feed=self.feed,
            publishers=self.publishers,
            populate_events_max=settings.populate_events_max,
        )
        self.origins = origins = OriginPolicy(settings.origins)
        self.at_stop: list[Callable[[], Awaitable[None]]] = []
        """What ends with the server."""
        self._pace = PublishPace(node.rates)
        self._quotas = ClientQuotas(node.quotas, node.gate.sources)
        self._cloudevents = CloudEventsPage(
            node,
            name=node.name,
            config=node.config,
            access=access,
            origins=origins,
            pace=self._pace,
            quotas=self._quotas,
        )
        self.pages = self._make_pages(access, origins)
        self._services = HttpServices(
            settings=settings,
            loop=asyncio.get_running_loop(),
            connections=self._connections,
            room=self.room,
            origins=origins,
            proxies=TrustedProxies(settings.trusted_proxies),
            tunnels=self.tunnels,
            feed=self.feed,
            logins=node.gate.logins,
            quota=node.gate.connections,
            quotas=self._quotas,
            on_request=self.pages.answer,
        )
        self._server: Server | None = None
        self._tls = server_tls(settings, lambda name, why: refusal(node.config, f"http.{name}", why))
        node.reloader.add("the certificate for https://", self._tls)
        node.gate.trust(self._tls)
        self._timer: asyncio.TimerHandle | None = None
        self._beat_at = 0.0

    def _make_pages(self, access: Access, origins: OriginPolicy) -> Pages:
        node, settings = self._node, self.settings
        promises = JournalPromises(
            node.journal,
            node.epoch,
            position=lambda: self.tunnels.position,
            started_at=node.started_at,
            forgets=node.config.journal.kind == "memory" or bool(node.journal.report.missing_bytes),
            followed_since=node.links.followed_since,
        )
        kn = KnPage(
            access=access,
            origins=origins,
            publishers=self.publishers,
            notifications=Notifications(
                settings, access=access, publishers=self.publishers, pace=self._pace, quotas=self._quotas
            ),
            routes=RouteRequests(settings, access=access, router=self.router, promises=promises),
            tunnels=KnTunnels(
                settings,
                journal=node.journal,
                feed=self.feed,
                access=access,
                origins=origins,
                router=self.router,
                promises=promises,
            ),
        )
        openings = PatternOpenings(settings, access=access, promises=promises)
        patterns = PatternTunnels(settings, origins=origins, openings=openings)
        by_path = {
            "/kn": kn.answer,
            "/sse": patterns.sse,
            "/ws": patterns.websocket,
            PATH: self._cloudevents.answer,
            TICKET: TicketPage(node.gate.tickets, origins).answer,
        }
        host = urlsplit(f"//{settings.listen}").hostname or ""
        hosts = HostPolicy(host, settings.hosts)
        return Pages(by_path, access=access, gate=node.gate, origins=origins, hosts=hosts)

    async def start(self) -> None:
        """Listen. Raises `InvalidConfig`."""
        parts = urlsplit(f"//{self.settings.listen}")
        host, port = parts.hostname or "", parts.port or 0
        scheme = "http" if self._tls is None else "https"
        try:
            self._server, self.url = await open_server(
                lambda: HttpConnection(self._services), scheme, host, port, tls=self._tls, backlog=4096
            )
        except OSError as error:
            why = listen_failure(self.settings.listen, error)
            raise InvalidConfig("http.listen", self._node.config.origin("http.listen"), why) from None
        self.room.warn()
        self.router.review()
        self._node.watchers.append(self.feed.grown)
        self._node.gate.watchers.append(self._review)
        self._node.budget_clients(self._budgeted)
        self._timer = self._services.loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Tell every tunnel, and close all connections within `http.stop_timeout_s`."""
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        if self.feed.grown in self._node.watchers:
            self._node.watchers.remove(self.feed.grown)
        why = "the server stops; reconnect to resume"
        await self._connections.end_all(why, self.settings.stop_timeout_s)
        await self.pages.close()
        await self._cloudevents.close()
        for stop in self.at_stop:
            await stop()
        self.publishers.close()

    def _budgeted(self) -> list[BudgetedClient]:
        return [BudgetedClient(connection, self._node.gate) for connection in self._connections.full()]

    def _review(self) -> None:
        """The rules have changed."""
        self.router.review()
        self._connections.review(self._access)

    def _tick(self) -> None:
        now = self._services.loop.time()
        self._timer = self._services.loop.call_later(TICK_S, self._tick)
        self.tunnels.tick(now)
        self.feed.perform()
        if now >= self._beat_at:
            self._beat_at = now + self.settings.heartbeat_s / 4
            self.feed.heartbeat(self.settings.heartbeat_s)
        self._connections.close_overdue(now, self.settings.request_timeout_s)
        self.router.renew()

    def clients(self) -> list[tuple[int, OpenHttpConnection]]:
        """The connections with their numbers."""
        return self._connections.numbered()

    def describe(self, client: OpenHttpConnection) -> dict[str, Any]:
        """Who a client is, and what its tunnel carries."""
        return client.describe(self._services.loop.time())

    def end_client(self, number: int, why: str) -> bool:
        """End a connection. A tunnel is told why."""
        found = next((one for at, one in self._connections.numbered() if at == number), None)
        if found is not None:
            found.end(why)
        return found is not None

    def status(self) -> dict[str, Any]:
        """The numbers of connections and tunnels, and their limits."""
        tunnels = {f"tunnels_{state}": count for state, count in self.tunnels.counts().items()}
        room = {"tunnels_max": self.room.tunnels_max, "files_max": self.room.files_max}
        return {"url": self.url, "connections": len(self._connections), **tunnels, **room}

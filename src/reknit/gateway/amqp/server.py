"""The AMQP server of a node: it listens, and closes connections cleanly when the node stops."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from reknit.config import AmqpSettings
from reknit.errors import InvalidConfig
from reknit.gateway.amqp.connection import AmqpConnection, AmqpServices
from reknit.gateway.amqp.connections import AmqpConnections
from reknit.gateway.amqp.links.incoming import AmqpIncomingLink
from reknit.gateway.amqp.links.outgoing import AmqpOutgoingLink
from reknit.gateway.amqp.links.replies import ReplyAddresses
from reknit.gateway.amqp.links.services import DeliveryCounts
from reknit.gateway.amqp.node_client import NodeClient
from reknit.gateway.amqp.security import AmqpSecurity
from reknit.gateway.budgeted_clients import BudgetedClient
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.publish_pace import PublishPace
from reknit.node.api import GatewayNode
from reknit.transport.servers import Server, listen_failure, open_server

STOPS = "the node stops"


class AmqpServer:
    """AMQP for one node."""

    def __init__(self, node: GatewayNode) -> None:
        self.settings: AmqpSettings = node.config.amqp
        self.url = ""
        self.connections: AmqpConnections[AmqpConnection] = AmqpConnections()
        self.replies = ReplyAddresses()
        """The addresses that clients were given for replies."""
        self._origin = node.config.origin
        self._security = AmqpSecurity(self.settings, node.gate, self._refusal)
        self._counts = DeliveryCounts()
        self._node = NodeClient(node)
        self._services = AmqpServices(
            name=node.name,
            settings=self.settings,
            message_bytes_max=min(self.settings.message_bytes_max, node.config.limits.payload_bytes_max),
            loop=asyncio.get_running_loop(),
            node=self._node,
            security=self._security,
            access=node.gate,
            logins=node.gate.logins,
            audit=node.gate.audit,
            refusals=node.gate.refusals,
            pace=PublishPace(node.rates),
            quota=node.gate.connections,
            quotas=ClientQuotas(node.quotas, node.gate.sources),
            attempts=node.gate.attempts,
            counts=self._counts,
            replies=self.replies,
            connections=self.connections,
        )
        self._server: Server | None = None
        self._security.follow(node)
        self._gate = node.gate
        node.budget_clients(self._budgeted)
        node.gate.watchers.append(self._review)

    def _budgeted(self) -> list[BudgetedClient]:
        return [BudgetedClient(one, self._gate) for one in self.connections if one.waiting_bytes]

    def _review(self) -> None:
        """The rules have changed."""
        for connection in self.connections:
            connection.review()

    def _refusal(self, setting: str, why: str) -> InvalidConfig:
        name = f"amqp.{setting}"
        return InvalidConfig(name, self._origin(name), why)

    async def start(self) -> None:
        """Listen. Raises `InvalidConfig`."""
        parts = urlsplit(f"//{self.settings.listen}")
        host, port = parts.hostname or "", parts.port or 0
        tls = self._security.tls
        scheme = "amqps" if tls is not None else "amqp"
        await self._node.open()
        try:
            self._server, self.url = await open_server(
                lambda: AmqpConnection(self._services), scheme, host, port, tls=tls
            )
        except OSError as error:
            await self._node.close()
            raise self._refusal("listen", listen_failure(self.settings.listen, error)) from None

    async def stop(self) -> None:
        """Wait until messages have their outcomes, then close every link with the reason."""
        if self._server is not None:
            self._server.close()
        await self.connections.stop(STOPS, self.settings.stop_timeout_s)
        await self._node.close()

    def clients(self) -> list[tuple[int, AmqpConnection]]:
        """The connections with their numbers."""
        return self.connections.numbered()

    def describe(self, client: AmqpConnection) -> dict[str, Any]:
        """Who a client is, and which links it has."""
        return client.describe()

    def end_client(self, number: int, why: str) -> bool:
        """Close a connection with a reason."""
        found = next((one for at, one in self.connections.numbered() if at == number), None)
        if found is not None:
            found.end(why)
        return found is not None

    def status(self) -> dict[str, Any]:
        """The numbers of connections, links and deliveries, of unsettled messages, and of credit."""
        links = [link for connection in self.connections for link in connection.links]
        ins = [link for link in links if isinstance(link, AmqpIncomingLink)]
        outs = [link for link in links if isinstance(link, AmqpOutgoingLink)]
        return {
            "url": self.url,
            "connections": len(self.connections),
            "links_in": len(ins),
            "links_out": len(outs),
            "deliveries_in": self._counts.incoming,
            "deliveries_out": self._counts.outgoing,
            "dropped_settled": self._counts.dropped,
            "unsettled_in": sum(link.unsettled for link in ins),
            "unsettled_out": sum(link.unsettled for link in outs),
            "credit_in": sum(link.credit for link in ins),
            "credit_out": sum(link.credit for link in outs),
        }

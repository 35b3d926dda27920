"""The AMQP server inside a node: listens, knows who may connect, and ends connections in good order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reknit.config import AmqpSettings
from reknit.errors import InvalidConfig
from reknit.gateway.amqp.connection import AmqpConnection
from reknit.gateway.amqp.fabric import Fabric
from reknit.gateway.amqp.incoming import Incoming
from reknit.gateway.amqp.outgoing import Outgoing
from reknit.gateway.amqp.sasl import SaslServer
from reknit.gateway.http.access import Rules
from reknit.node.api import GatewayNode
from reknit.node.streams.streams import DISTRIBUTIONS

STOPS = "the node stops"


class AmqpServer:
    """AMQP for one node."""

    def __init__(self, node: GatewayNode) -> None:
        self.settings: AmqpSettings = node.config.amqp
        self.message_bytes_max = min(self.settings.message_bytes_max, node.config.limits.payload_bytes_max)
        self.name = node.name
        self.loop = asyncio.get_running_loop()
        self.connections: dict[AmqpConnection, None] = {}
        self.all_gone = asyncio.Event()
        self.settled = asyncio.Event()
        """Set when a message has its outcome, or its connection is gone."""
        self.replies: dict[str, None] = {}
        """The addresses that clients were given for replies."""
        self.url = ""
        self.deliveries_in = self.deliveries_out = 0
        """Messages taken from clients and sent to clients, since the node started."""
        self._node = node
        self._users = self._read_users()
        self._tls = self._context()
        self.rules = self._read_rules()
        self.fabric = Fabric(node)
        self._server: asyncio.Server | None = None

    @property
    def stream_window_bytes(self) -> int:
        """How much of a stream waits for a client."""
        return self._node.config.anycast.stream_window_bytes

    def stream_bytes_max(self, topic: str) -> int:
        """How long a message on the topic may be: more than memory should hold, if it may go in pieces."""
        can_stream = self._node.anycast.mode(topic) in DISTRIBUTIONS
        return self._node.config.anycast.stream_bytes_max if can_stream else self.message_bytes_max

    def status(self) -> dict[str, Any]:
        """How many are connected, what went in and out, what has no outcome yet, and what credit there is."""
        links = [link for connection in self.connections for link in connection.links]
        ins = [link for link in links if isinstance(link, Incoming)]
        outs = [link for link in links if isinstance(link, Outgoing)]
        return {
            "url": self.url,
            "connections": len(self.connections),
            "links_in": len(ins),
            "links_out": len(outs),
            "deliveries_in": self.deliveries_in,
            "deliveries_out": self.deliveries_out,
            "unsettled_in": sum(link.unsettled for link in ins),
            "unsettled_out": sum(link.unsettled for link in outs),
            "credit_in": sum(link.credit for link in ins),
            "credit_out": sum(link.credit for link in outs),
        }

    # -- settings

    def _refuse(self, setting: str, why: str) -> InvalidConfig:
        name = f"amqp.{setting}"
        return InvalidConfig(name, self._node.config.origin(name), why)

    def _read_users(self) -> dict[str, str]:
        if not self.settings.users_file:
            return {}
        try:
            lines = Path(self.settings.users_file).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise self._refuse("users_file", f"can't be read: {error}") from None
        users: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words and not words[0].startswith("#"):
                if len(words) != 2:
                    raise self._refuse("users_file", f"needs a name and a password on line {number}")
                users[words[0]] = words[1]
        return users

    def _read_rules(self) -> Rules:
        try:
            return Rules(self.settings.allow)
        except InvalidConfig as error:
            raise self._refuse("allow", error.why) from None

    def _context(self) -> ssl.SSLContext | None:
        settings = self.settings
        if not settings.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise self._refuse("tls_cert_file", f"can't be used: {error}") from None
        if settings.tls_ca_file:
            try:
                context.load_verify_locations(settings.tls_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise self._refuse("tls_ca_file", f"can't be used: {error}") from None
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def sasl(self, transport: asyncio.Transport) -> SaslServer:
        """The exchange for a new connection: PLAIN where nobody listens, EXTERNAL with a certificate."""
        is_open = self._tls is None and self.settings.plain_needs_tls
        mechanisms = [one for one in self.settings.mechanisms if one != "PLAIN" or not is_open]
        return SaslServer(mechanisms, self._users, subject(transport.get_extra_info("peercert")))

    # -- life

    async def start(self) -> None:
        """Listen. Raises `InvalidConfig`."""
        parts = urlsplit(f"//{self.settings.listen}")
        host, port = parts.hostname or "", parts.port or 0
        await self.fabric.open()
        try:
            self._server = await self.loop.create_server(
                lambda: AmqpConnection(self), host, port, backlog=1024, ssl=self._tls
            )
        except OSError as error:
            await self.fabric.close()
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            text = f"names {self.settings.listen}, which can't be listened on: {why}"
            raise self._refuse("listen", text) from None
        real = self._server.sockets[0].getsockname()[1]
        scheme = "amqps" if self._tls is not None else "amqp"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{real}"

    def gone(self, connection: AmqpConnection) -> None:
        """A connection is lost."""
        self.connections.pop(connection, None)
        self.settled.set()
        if not self.connections:
            self.all_gone.set()

    async def stop(self) -> None:
        """Let what was taken get its outcomes, then close every link with the reason; not for long."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_timeout_s):
                await self._finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_timeout_s):
                await self._close_all()
        for connection in list(self.connections):
            connection.abort()
        await self.fabric.close()

    async def _finish(self) -> None:
        for connection in self.connections:
            connection.stop()
        while any(connection.unsettled for connection in self.connections):
            self.settled.clear()
            await self.settled.wait()

    async def _close_all(self) -> None:
        for connection in list(self.connections):
            connection.end(STOPS)
        if self.connections:
            await self.all_gone.wait()


def subject(certificate: Any) -> str:
    """The common name in a client's certificate, as Python's ssl gives it; empty without one.

    >>> subject({"subject": ((("countryName", "DE"),), (("commonName", "pump-7"),))})
    'pump-7'
    """
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""

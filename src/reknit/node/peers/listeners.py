"""The addresses on which a node listens: TCP, with or without TLS."""

from __future__ import annotations

import asyncio
import ssl

from reknit.config import Config
from reknit.transport import tcp
from reknit.transport.connection import Handler
from reknit.transport.servers import listen_failure
from reknit.transport.tls import refusal, server_tls


class Listeners:
    """All listeners of one node. `handler` hears of the events on each connection."""

    def __init__(self, config: Config, handler: Handler) -> None:
        self._config = config
        self._handler = handler
        self._servers: list[asyncio.Server] = []
        self.urls: list[str] = []
        """Where they listen, with the real port where the system chose it."""

    async def open(self) -> None:
        """Listen as the configuration says. Raises `InvalidConfig`."""
        for url in self._config.node.listen:
            await self._listen(url)

    async def _listen(self, url: str) -> None:
        tls = self._tls() if url.startswith("tls://") else None
        try:
            server, real = await tcp.listen(url, self._handler, self._config.limits.frame_bytes_max, tls)
        except OSError as error:
            raise refusal(self._config, "node.listen", listen_failure(url, error)) from None
        self._servers.append(server)
        self.urls.append(real)

    def _tls(self) -> ssl.SSLContext | None:
        return server_tls(
            self._config.transport, lambda name, why: refusal(self._config, f"transport.{name}", why)
        )

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

"""The addresses on which a node listens: TCP, with or without TLS."""

from __future__ import annotations

import asyncio
import ssl

from reknit.config import Config
from reknit.errors import InvalidConfig
from reknit.transport import tcp
from reknit.transport.connection import Handler
from reknit.transport.servers import listen_failure, server_tls


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
            raise self._refusal("node.listen", listen_failure(url, error)) from None
        self._servers.append(server)
        self.urls.append(real)

    def _tls(self) -> ssl.SSLContext | None:
        files = self._config.transport
        return server_tls(
            files.tls_cert_file,
            files.tls_key_file,
            files.tls_ca_file,
            lambda name, why: self._refusal(f"transport.{name}", why),
        )

    def _refusal(self, setting: str, why: str) -> InvalidConfig:
        return InvalidConfig(setting, self._config.origin(setting), why)

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

"""The addresses on which a node listens: TCP, with or without TLS."""

from __future__ import annotations

import asyncio
import os
import ssl

from reknit.config import Config
from reknit.errors import InvalidConfig
from reknit.transport import tcp
from reknit.transport.connection import Handler


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
            # asyncio's own text repeats the address in another form
            number = error.errno or 0
            why = os.strerror(number).lower() if number > 0 else (error.strerror or str(error))
            text = f"names {url}, which can't be listened on: {why}"
            raise InvalidConfig("node.listen", self._config.origin("node.listen"), text) from None
        self._servers.append(server)
        self.urls.append(real)

    def _tls(self) -> ssl.SSLContext | None:
        settings = self._config.transport
        if not settings.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        if settings.tls_ca_file:
            context.load_verify_locations(settings.tls_ca_file)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

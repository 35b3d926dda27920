"""The addresses on which a node listens: TCP, with or without TLS, and Unix sockets."""

from __future__ import annotations

import os

from reknit.config import Config
from reknit.transport import tcp
from reknit.transport.connection import Handler
from reknit.transport.servers import Server, listen_failure
from reknit.transport.tls import ServerTls, refusal, server_tls
from reknit.transport.unix import UNIX, unix_path


class Listeners:
    """All listeners of one node. `handler` hears of the events on each connection."""

    def __init__(self, config: Config, handler: Handler) -> None:
        self._config = config
        self._handler = handler
        self._servers: list[Server] = []
        self.tls: ServerTls | None = None
        """The certificate of those with TLS."""
        self.urls: list[str] = []
        """Where they listen, with the real port where the system chose it."""

    async def open(self) -> None:
        """Listen as the configuration says. Raises `InvalidConfig`."""
        config = self._config
        if any(url.startswith("tls:") for url in config.node.listen):
            self.tls = server_tls(
                config.transport, lambda name, why: refusal(config, f"transport.{name}", why)
            )
        for url in config.node.listen:
            await self._listen(url)

    async def _listen(self, url: str) -> None:
        bytes_max = self._config.limits.frame_bytes_max
        try:
            server, real = await tcp.listen(url, self._handler, bytes_max, self.tls)
        except OSError as error:
            raise refusal(self._config, "node.listen", listen_failure(url, error)) from None
        if url.startswith(UNIX):
            self._set_mode(unix_path(url))
        self._servers.append(server)
        self.urls.append(real)

    def _set_mode(self, path: str) -> None:
        """Every user of this machine may connect where rules say what they may do; otherwise the node's own user."""
        security = self._config.security
        os.chmod(path, 0o666 if security.allow or security.tokens_file else 0o600)

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

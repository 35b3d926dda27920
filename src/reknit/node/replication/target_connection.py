"""The connection over which events are published at a node: another one, or the one that this process runs."""

from __future__ import annotations

from collections.abc import Callable

from reknit.config import Config
from reknit.connection.node_connection import ConnectionUser, NodeConnection
from reknit.transport import memory
from reknit.transport.connection import Handler
from reknit.wire.messages import COPIER


class TargetConnection(NodeConnection):
    """With a `handler`, the node of this process: the connection is within the process, and does not break.

    The node is told that these events are stored elsewhere, so that it does not refuse them for their times.
    """

    def __init__(
        self, url: str, name: str, user: ConnectionUser, *, config: Config, handler: Handler | None = None
    ) -> None:
        super().__init__(url if handler is None else memory.new_url(name), name, user, config, role=COPIER)
        self._handler = handler
        self._stop_listening: Callable[[], None] | None = None

    async def open(self, wait_s: float = 1.0) -> None:
        """Connect, retrying for `wait_s`. Raises `NotConnected`, `RemoteError`."""
        if self._handler is not None and self._stop_listening is None:
            self._stop_listening = memory.listen(self.url, self._handler)
        await super().open(wait_s)

    async def close(self) -> None:
        """Disconnect."""
        await super().close()
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

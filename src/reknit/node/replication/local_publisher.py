"""Publishes at the node that this process runs, over a connection within the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reknit.config import Config
from reknit.node.replication.batch_publisher import BatchPublisher, OnDurable, OnGap, OnRefused, ReportLoss
from reknit.transport import memory
from reknit.transport.connection import Handler

__all__ = ["LocalPublisher", "MakePublisher", "OnDurable", "OnGap", "OnRefused"]


class LocalPublisher(BatchPublisher):
    """Made by `node.local_publisher`. A connection within the process does not break."""

    def __init__(
        self,
        name: str,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
        *,
        handler: Handler,
        config: Config,
        report_loss: ReportLoss,
    ) -> None:
        super().__init__(
            f"memory://{id(handler):x}/{name}",
            name,
            config=config,
            on_durable=on_durable,
            on_gap=on_gap,
            on_refused=on_refused,
            report_loss=report_loss,
        )
        self._handler = handler
        self._stop_listening: Callable[[], None] | None = None

    async def open(self, wait_s: float = 1.0) -> None:
        """Connect to the node."""
        self._stop_listening = memory.listen(self.url, self._handler)
        await super().open(wait_s)

    async def close(self) -> None:
        """Disconnect."""
        await super().close()
        if self._stop_listening is not None:
            self._stop_listening()


class MakePublisher(Protocol):
    """Makes a publisher at this node; `node.local_publisher`."""

    def __call__(
        self,
        name: str,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
    ) -> LocalPublisher:
        """Make a publisher, which is not open yet."""

"""A session with another node, as far as relays, bridges and aligners need one. `reknit.server` provides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.node_connection import NodeConnection
from reknit.protocol.subscribe.inputs import LossReport

OnLost = Callable[[LossReport], None]


class RemoteEvents(Protocol):
    """A durable subscription at the other node; open while in its `async with`."""

    async def __aenter__(self) -> RemoteEvents: ...

    async def __aexit__(self, kind: type[BaseException] | None, *args: object) -> None: ...

    async def take_all(self, wait_s: float | None = None, gives_up: Callable[[], bool] = bool) -> list[Batch]:
        """Every batch that has arrived, once there is one; none at the end, or if the caller `gives_up` after `wake`."""

    def confirm_lost(self, report: LossReport) -> None:
        """Be told of this loss no more."""

    def wake(self) -> None:
        """Let `take_all` ask whether to return without a batch."""

    async def forget(self) -> None:
        """Delete the durable subscription."""


class RemoteSession(Protocol):
    """A client's connection to the other node; open while in its `async with`."""

    connection: NodeConnection

    async def open(self) -> object:
        """Connect. Raises `NotConnected`."""

    async def close(self) -> None:
        """Disconnect."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *args: object) -> None: ...

    def subscribe(
        self,
        pattern: str,
        *,
        name: str = "",
        history: bool = False,
        auto_accept: bool = True,
        is_cache: bool = False,
        on_lost: OnLost | None = None,
        confirm_losses: bool = True,
    ) -> RemoteEvents:
        """Events that match the pattern, for a durable subscriber."""

    async def ask(self, what: str, **args: Any) -> Any:
        """Send an admin request; returns the answer's body."""


class ConnectSession(Protocol):
    """Makes a session, which is not open yet."""

    def __call__(self, url: str, *, config: Config, token: str = "", wait_s: float = 5.0) -> RemoteSession:
        """`wait_s` is how long `open` tries."""

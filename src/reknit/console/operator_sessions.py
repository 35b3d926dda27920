"""Connections to the node for those who use the console: each may do there what its own token or certificate allows.

The console has no rights and no way into the node of its own. It makes the requests of an operator over a connection
within the process, and proves there who the operator is, as any client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from reknit.config import Config
from reknit.connection.admin_requests import AdminRequests
from reknit.connection.node_connection import NodeConnection
from reknit.credentials import Credentials
from reknit.errors import Refused
from reknit.outcome import Code
from reknit.transport import memory
from reknit.transport.connection import Handler
from reknit.wire.codec import Item, Raw
from reknit.wire.messages import Answer, Welcome

SESSIONS_MAX: Final = 64
IDLE_S: Final = 60.0
"""How long a connection stays open after its last request."""
REQUESTS_MAX: Final = 8
"""Requests of one operator that the node answers at the same time; more wait for their turn."""


class Operator(NamedTuple):
    """What somebody proves about themselves with a request."""

    token: str
    certified: Credentials
    address: str


class OperatorSession:
    """One operator's connection. It is not opened again when it breaks."""

    def __init__(self, operator: Operator, url: str, config: Config) -> None:
        guest = memory.Guest(operator.certified, operator.address, "http")
        self._connection = NodeConnection(url, "console", self, config, operator.token, guest=guest)
        self._requests = AdminRequests(self._connection)
        self._turns = asyncio.Semaphore(REQUESTS_MAX)
        self.used_at = 0.0
        self.is_lost = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not len(self._requests)

    async def open(self) -> None:
        """Connect. Raises `Refused` for a token that proves nothing."""
        await self._connection.open(0.0)

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()

    async def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request. Raises `Refused`, `NotConnected`."""
        return (await self.ask_raw(what, **args))[0]

    async def ask_raw(self, what: str, **args: Any) -> tuple[Any, bytes]:
        """The same, with the bytes that come with the answer."""
        async with self._turns:
            self.used_at = asyncio.get_running_loop().time()
            return await self._requests.ask(what, args)

    # -- called by the connection

    def connected(self, welcome: Welcome) -> None:
        """It is open."""

    def disconnected(self) -> None:
        """The node ended it: the token was revoked or has expired, or the node stops."""
        self.is_lost = True
        self._requests.lost()
        self._closing = asyncio.create_task(self.close())

    def received(self, items: list[Item]) -> None:
        """Answers came."""
        for item in items:
            if isinstance(item, Answer | Raw):
                self._requests.take(item)


class OperatorSessions:
    """The open connections, at most `SESSIONS_MAX`."""

    def __init__(self, node: Handler, config: Config) -> None:
        self._config = config
        self._url = memory.new_url("console")
        self._stop_listening: Callable[[], None] = memory.listen(self._url, node)
        self._open: dict[Operator, OperatorSession] = {}
        self._opening = asyncio.Lock()

    async def of(self, operator: Operator) -> OperatorSession:
        """The connection of an operator. Raises `Refused`."""
        async with self._opening:
            await self._close_unused()
            session = self._open.get(operator)
            if session is None:
                if len(self._open) >= SESSIONS_MAX:
                    await self._make_room()
                session = OperatorSession(operator, self._url, self._config)
                session.used_at = asyncio.get_running_loop().time()
                await session.open()
                self._open[operator] = session
            return session

    async def _close_unused(self) -> None:
        """Close what was lost, and what nobody has used for a while."""
        since = asyncio.get_running_loop().time() - IDLE_S
        for operator, session in list(self._open.items()):
            if session.is_lost or (session.is_idle and session.used_at < since):
                del self._open[operator]
                await session.close()

    async def _make_room(self) -> None:
        """Close the connection that was not used for the longest time. Raises `Refused` if all are in use."""
        idle = [operator for operator, session in self._open.items() if session.is_idle]
        if not idle:
            text = f"the node answers {SESSIONS_MAX} people at its console: try again in a moment"
            raise Refused(Code.RESOURCE_EXHAUSTED, text)
        longest = min(idle, key=lambda operator: self._open[operator].used_at)
        await self._open.pop(longest).close()

    async def close(self) -> None:
        """Disconnect all."""
        self._stop_listening()
        for session in self._open.values():
            await session.close()
        self._open.clear()

"""Connections to the node for those who use the console: each may do there what its own token or certificate allows.

The console has no rights and no way into the node of its own. It makes the requests of an operator over a connection
within the process, and proves there who the operator is, as any client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from reknit import environment
from reknit.config import Config
from reknit.connection.admin_requests import AdminRequests
from reknit.connection.node_connection import NodeConnection
from reknit.connection.publish_driver import PublishDriver
from reknit.credentials import Credentials
from reknit.errors import NotConnected, Refused
from reknit.outcome import Code
from reknit.protocol.publish.publisher import Connected, SourcePublisher
from reknit.transport import memory
from reknit.transport.connection import Handler
from reknit.wire.codec import Item, Raw
from reknit.wire.messages import Ack, Answer, Expect, Go, Hold, Refuse, Welcome

SESSIONS_MAX: Final = 64
IDLE_S: Final = 60.0
"""How long a connection stays open after its last request."""
TOPICS_MAX: Final = 32
"""On so many topics one operator publishes at a time; each has a source of its own."""
STORED_S_MAX: Final = 15.0
"""How long an event that was published may take to be stored."""
NODES_MAX: Final = 32
"""So many connections to other nodes are open for one operator."""
OTHER_NODE_S: Final = 2.0
"""How long it may take to connect to another node."""
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
        guest: memory.Guest | None = memory.Guest(operator.certified, operator.address, "http")
        if not url.startswith("memory:"):
            guest = None
        self._operator = operator
        self._config = config
        self._url = url
        self._connection = NodeConnection(url, "console", self, config, operator.token, guest=guest)
        self._publishers: dict[str, PublishDriver] = {}
        self._others: dict[str, OperatorSession] = {}
        """Connections to other nodes, by URL."""
        self._requests = AdminRequests(self._connection)
        self._turns = asyncio.Semaphore(REQUESTS_MAX)
        self.used_at = 0.0
        self.is_lost = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not len(self._requests) and all(one.is_idle for one in self._publishers.values())

    async def open(self) -> None:
        """Connect. Raises `Refused` for a token that proves nothing."""
        await self._connection.open(0.0)

    async def close(self) -> None:
        """Disconnect."""
        for other in self._others.values():
            await other.close()
        self._others.clear()
        await self._connection.close()

    async def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request. Raises `Refused`, `NotConnected`."""
        return (await self.ask_raw(what, **args))[0]

    async def ask_raw(self, what: str, **args: Any) -> tuple[Any, bytes]:
        """The same, with the bytes that come with the answer."""
        async with self._turns:
            self.used_at = asyncio.get_running_loop().time()
            return await self._requests.ask(what, args)

    async def ask_node(self, url: str, what: str, **args: Any) -> Any:
        """Ask another node of the fabric, with the same token. Raises `Refused`, `NotConnected`."""
        other = self._others.get(url)
        if other is None or other.is_lost:
            while len(self._others) >= NODES_MAX:
                await self._others.pop(next(iter(self._others))).close()
            other = OperatorSession(self._operator, url, self._config)
            async with asyncio.timeout(OTHER_NODE_S):
                await other.open()
            self._others[url] = other
        return await other.ask(what, **args)

    # -- publishing

    async def publish(
        self, topic: str, payload: bytes, *, ttl_ms: int = 0, columns: dict[str, list[Any]] | None = None
    ) -> str:
        """Publish an event; returns its id once it is stored. Raises `Refused`, `NotConnected`."""
        async with self._turns:
            self.used_at = asyncio.get_running_loop().time()
            driver = self._publisher(topic)
            try:
                async with asyncio.timeout(STORED_S_MAX):
                    await driver.numbered()
                    driver.check()
                    batch = driver.machine.put(
                        [payload], environment.time_us(), ttl_ms=ttl_ms, columns=columns
                    )
                    driver.perform()
                    await driver.flush()
            except TimeoutError:
                why = f"the event was not stored within {STORED_S_MAX:.0f} s: it may be stored later"
                raise NotConnected(self._url, why) from None
            return f"{batch.source.hex()}:{batch.first}"

    def _publisher(self, topic: str) -> PublishDriver:
        driver = self._publishers.get(topic)
        if driver is None or driver.error is not None:
            while len(self._publishers) >= TOPICS_MAX:
                del self._publishers[next(iter(self._publishers))]
            machine = SourcePublisher(environment.token_bytes(16), topic)
            driver = PublishDriver(
                machine, self._connection, on_refused=lambda error: self._publishers[topic].fail(error)
            )
            self._publishers[topic] = driver
            driver.receive(Connected())
        return driver

    def _heard(self, item: Ack | Expect | Refuse | Hold | Go) -> None:
        """The node told publishers something: those of a source, or all."""
        named = [] if isinstance(item, Go) else item.sources if isinstance(item, Hold) else [item.source]
        for driver in list(self._publishers.values()):
            if not named or driver.machine.source in named:
                driver.receive(item)

    # -- called by the connection

    def connected(self, welcome: Welcome) -> None:
        """It is open."""

    def disconnected(self) -> None:
        """The node ended it: the token was revoked or has expired, or the node stops."""
        self.is_lost = True
        self._requests.lost()
        for driver in self._publishers.values():
            driver.fail(Refused(Code.UNAVAILABLE, "the connection to the node was lost"))
        self._closing = asyncio.create_task(self.close())

    def received(self, items: list[Item]) -> None:
        """Answers came."""
        for item in items:
            if isinstance(item, Answer | Raw):
                self._requests.take(item)
            elif isinstance(item, Ack | Expect | Refuse | Hold | Go):
                self._heard(item)


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

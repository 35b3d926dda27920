"""Zenoh sessions and a gateway on endpoints of this machine, and a network between them that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import zenoh

from reknit.client.session import Session
from reknit.gateway.zenoh.gateway import ZenohGateway
from reknit.gateway.zenoh.session import zenoh_config
from reknit.gateway.zenoh.threads import call, leave
from reknit.node.node import Node
from reknit.processes.process import free_port
from reknit.server import build_node
from tests.node.fabric import client, config

KEY = "plant/temp"
BLOCK = zenoh.CongestionControl.BLOCK


class Peer:
    """A Zenoh session. Every call has a time limit, and everything is undeclared before it closes."""

    def __init__(self, listen: list[str], connect: list[str], mode: str = "peer") -> None:
        self._config = zenoh_config(listen, connect, mode)
        self._config.insert_json5("timestamping/enabled", "true")
        self._declared: list[Any] = []
        self.session: Any = None

    async def __aenter__(self) -> Peer:
        self.session = await call(zenoh.open, self._config)
        return self

    async def __aexit__(self, *args: object) -> None:
        await call(leave, self.session, self._declared)

    async def declare(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        made = await call(function, *args, **options)
        self._declared.append(made)
        return made

    async def publisher(self, key: str = KEY) -> Any:
        return await self.declare(self.session.declare_publisher, key, congestion_control=BLOCK)

    async def subscriber(self, pattern: str, received: Callable[[Any], None]) -> Any:
        return await self.declare(self.session.declare_subscriber, pattern, received)

    async def advanced(self, samples: int, is_detected: bool = True, **heartbeats: float) -> Any:
        """An advanced publisher, with a cache if it has room for samples."""
        return await self.declare(
            zenoh.ext.declare_advanced_publisher,
            self.session,
            KEY,
            congestion_control=BLOCK,
            cache=zenoh.ext.CacheConfig(samples) if samples else None,
            publisher_detection=is_detected,
            sample_miss_detection=zenoh.ext.MissDetectionConfig(**heartbeats),
        )

    async def advanced_subscriber(
        self, received: Callable[[Any], None], missed: Callable[[Any], None] | None = None, **options: Any
    ) -> None:
        made = await self.declare(
            zenoh.ext.declare_advanced_subscriber, self.session, KEY, received, **options
        )
        if missed is not None:
            await self.declare(made.sample_miss_listener, missed)

    async def neighbours(self) -> int:
        """With how many others it is connected."""
        return len(await call(self.session.info.transports))

    async def sees(self) -> None:
        """Return when it is connected with somebody."""
        while not await self.neighbours():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def reaches(self, node: Node) -> None:
        """Return when samples reach the gateway. A canary shows it: a publisher's own status may block."""
        before = gateway(node).taken
        while gateway(node).taken == before:
            await call(self.session.put, "canary/there", b"0")
            await asyncio.sleep(0.02)

    async def is_reached_by(self, session: Session) -> None:
        """Return when events reach the subscribers that were declared here before."""
        seen: list[object] = []
        await self.subscriber("canary/back", seen.append)
        while not seen:
            await session.publish("canary/back", b"0")
            await asyncio.sleep(0.02)


def gateway(node: Node) -> ZenohGateway:
    return next(one for one in node.importers if isinstance(one, ZenohGateway))


@asynccontextmanager
async def joined(**recovery: Any) -> AsyncIterator[tuple[Node, Session, Peer]]:
    """A node in a Zenoh network, a session with it, and a Zenoh session."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    async with (
        build_node(config(zenoh_listen=(endpoint,), **recovery)) as node,
        client(node) as session,
        Peer([], [endpoint]) as peer,
    ):
        yield node, session, peer


class Received:
    """The samples that a Zenoh subscriber got."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sns: list[int] = []

    def __call__(self, sample: Any) -> None:
        self.numbers.append(int(sample.payload.to_bytes()))
        self.sns.append(sample.source_info.source_sn if sample.source_info is not None else -1)


class Proxy:
    """Passes connections on, until it is cut."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Proxy:
        await self.heal()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.cut()

    async def heal(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        if self._server is not None:
            self._server.close()
        self._server = None
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, out = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, out}
            if self._server is None:
                writer.transport.abort()
                out.transport.abort()
            await asyncio.gather(_copy(reader, out), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()

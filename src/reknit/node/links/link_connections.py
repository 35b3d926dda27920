"""A line: one connection between two nodes, from either end, and the batches that are announced on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from reknit.batch import Batch
from reknit.connection.node_connection import NodeConnection
from reknit.errors import ReknitError
from reknit.frame import Buffer
from reknit.node.peers.peers import PeerState
from reknit.outcome import Code
from reknit.transport.tcp import parse_url
from reknit.wire import links as link_messages
from reknit.wire.announced import Announced
from reknit.wire.codec import Frames, Item, encode
from reknit.wire.links import Carry, Forward
from reknit.wire.messages import Message, Welcome

if TYPE_CHECKING:
    from reknit.node.links.links import Links

log = logging.getLogger("reknit.node")

RETRY_S: Final = 0.5


class Line:
    """What both ends have in common. `hello` is what the other node said of itself, once it has."""

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.hello: link_messages.Link | None = None
        self.problem = ""
        """Why there is no link, in the other node's words or ours."""
        self.told: set[bytes] = set()
        """Sources whose origin was told on this line."""
        self._announced: Announced[Forward | Carry] = Announced()

    @property
    def name(self) -> str:
        return self.hello.node if self.hello is not None else ""

    @property
    def url(self) -> str:
        """Where the other node can be connected to."""
        raise NotImplementedError

    def send(self, *items: Message) -> None:
        """Say something."""
        self.send_buffers([encode(item) for item in items])

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send frames."""
        raise NotImplementedError

    def dismiss(self, code: Code, text: str) -> None:
        """Say why, and close."""
        raise NotImplementedError

    def drop(self) -> None:
        """Close at once."""
        raise NotImplementedError

    def announce(self, message: Forward | Carry) -> None:
        """The next bytes belong to this."""
        self._announced.announce(message)

    def take(self, frames: Frames) -> tuple[Forward | Carry, list[Batch], bool] | None:
        """What the batches were announced as, and whether they are the last of it; None: as nothing."""
        announced = self._announced.take(len(frames.data))
        if announced is None:
            return None
        message, is_last = announced
        return message, frames.batches(), is_last


class LineIn(Line):
    """The other node connected to this one."""

    def __init__(self, peer: PeerState, cost: int) -> None:
        super().__init__(cost)
        self.peer = peer

    @property
    def url(self) -> str:
        """As it says, on the address that it came from where it listens on all of its own."""
        urls = self.hello.urls if self.hello is not None else []
        for url in urls:
            if url.startswith(("tcp://", "tls://")):
                scheme, host, port = parse_url(url)
                if host in ("0.0.0.0", "::"):
                    host = self.peer.connection.peer.rpartition(":")[0]
                return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        return urls[0] if urls else ""

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self.peer.send_buffers(buffers)

    def dismiss(self, code: Code, text: str) -> None:
        self.peer.dismiss(code, text)

    def drop(self) -> None:
        self.peer.connection.abort()


class LineOut(Line):
    """This node connects to the other one, again and again until it is told not to."""

    def __init__(self, links: Links, url: str, cost: int, make_hello: Callable[[LineOut], Message]) -> None:
        super().__init__(cost)
        self._url = url
        self._links = links
        self._make_hello = make_hello
        self._link = NodeConnection(url, links.routes.name, self, links.config, role="node")
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """As this node does it."""
        return self._url

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._open())

    async def _open(self) -> None:
        while True:
            try:
                await self._link.open(float("inf"))
                return
            except (ReknitError, OSError) as error:
                self.problem = str(error)
                log.warning("the link to %s waits: %s", self.url, error)
            await asyncio.sleep(RETRY_S)

    async def stop(self) -> None:
        """Part, for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self._link.send_buffers(buffers)

    def dismiss(self, code: Code, text: str) -> None:
        self.problem = text
        log.error("no link to %s: %s", self.url, text)
        self._link.drop()

    def drop(self) -> None:
        self._link.drop()

    # -- the link's side

    def connected(self, welcome: Welcome) -> None:
        self.send(self._make_hello(self))

    def disconnected(self) -> None:
        if not self.name and self._link.goodbye_text:
            self.problem = self._link.goodbye_text
        self._links.lost(self)
        self._announced.clear()

    def received(self, items: list[Item]) -> None:
        for item in items:
            self._links.take(item, self)
        self._links.came_round()

"""One connection between two nodes, from either end, and the batches that are announced on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from reknit.batch import Batch
from reknit.config import Config
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

log = logging.getLogger("reknit.node")

RETRY_S: Final = 0.5


class LinkConnection:
    """The common part of both ends. `hello` is the other node's introduction, once it has arrived."""

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.hello: link_messages.Link | None = None
        self.problem = ""
        """Why there is no link, in the other node's words or ours."""
        self._origins_told: set[bytes] = set()
        """Sources whose origin the other node was told."""
        self._announced: Announced[Forward | Carry] = Announced()

    @property
    def name(self) -> str:
        return self.hello.node if self.hello is not None else ""

    @property
    def url(self) -> str:
        """The address of the other node."""
        raise NotImplementedError

    def send(self, *items: Message) -> None:
        """Send messages."""
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

    def introduced(self, hello: link_messages.Link) -> None:
        """The other node introduced itself."""
        self.hello = hello

    def gone(self) -> None:
        """The connection broke."""
        self.hello = None
        self._origins_told.clear()

    def knows_origin(self, source: bytes) -> bool:
        """Whether the other node was told the origin of a source; it is from now on."""
        is_known = source in self._origins_told
        self._origins_told.add(source)
        return is_known

    def forget_origin(self, source: bytes) -> None:
        """The origin of a source changed."""
        self._origins_told.discard(source)

    def announce(self, message: Forward | Carry) -> None:
        """The next bytes belong to this message."""
        self._announced.announce(message)

    def take(self, frames: Frames) -> tuple[Forward | Carry, list[Batch], bool] | None:
        """The message that announced these batches, and whether they are its last ones; None if there was none."""
        announced = self._announced.take(len(frames.data))
        if announced is None:
            return None
        message, is_last = announced
        return message, frames.batches(), is_last


class IncomingLink(LinkConnection):
    """The other node connected to this one."""

    def __init__(self, peer: PeerState, cost: int) -> None:
        super().__init__(cost)
        self.peer = peer

    @property
    def url(self) -> str:
        """The address that the other node names. If it listens on all addresses, the one that it connects from."""
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


class LinkOwner(Protocol):
    """Hears of the events on a connection that this node opened."""

    def take(self, item: Item, connection: LinkConnection) -> None:
        """A message or batches came in."""

    def lost(self, connection: LinkConnection) -> None:
        """The connection is gone; it is being opened again."""

    def hello(self, connection: LinkConnection) -> Message:
        """How this node introduces itself."""

    def run_machines(self) -> None:
        """Everything that arrived together was processed: perform the effects."""


class OutgoingLink(LinkConnection):
    """This node connects to the other one, and connects again whenever the connection breaks."""

    def __init__(self, url: str, cost: int, *, node_name: str, config: Config, owner: LinkOwner) -> None:
        super().__init__(cost)
        self._url = url
        self._owner = owner
        self._link = NodeConnection(url, node_name, self, config, role="node")
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address that this node connects to."""
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
        """Disconnect, and do not reconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self._link.send_buffers(buffers)

    def introduced(self, hello: link_messages.Link) -> None:
        super().introduced(hello)
        self.problem = ""

    def dismiss(self, code: Code, text: str) -> None:
        self.problem = text
        log.error("no link to %s: %s", self.url, text)
        self._link.drop()

    def drop(self) -> None:
        self._link.drop()

    # -- the connection's side

    def connected(self, welcome: Welcome) -> None:
        """The other node is there, or there again."""
        self.send(self._owner.hello(self))

    def disconnected(self) -> None:
        """The connection broke. It is being opened again."""
        if not self.name and self._link.goodbye_text:
            self.problem = self._link.goodbye_text
        self._owner.lost(self)
        self._announced.clear()

    def received(self, items: list[Item]) -> None:
        """Messages and batches came in."""
        for item in items:
            self._owner.take(item, self)
        self._owner.run_machines()

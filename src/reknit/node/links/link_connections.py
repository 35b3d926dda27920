"""One connection between two nodes, from either end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol, assert_never

from reknit.config import Config
from reknit.connection.node_connection import NodeConnection
from reknit.errors import ReknitError
from reknit.frame import Buffer
from reknit.node.peers.peers import PeerState
from reknit.outcome import Code
from reknit.protocol.links.inputs import CloseLine, DismissLine, SendFrames, SendOnLine
from reknit.protocol.machine import Peer
from reknit.transport.tcp import parse_url
from reknit.wire.codec import Item, encode
from reknit.wire.messages import Welcome

log = logging.getLogger("reknit.node")

RETRY_S: Final = 0.5


class LinkConnection:
    """The common part of both ends. `id` is how the machine of links calls it."""

    def __init__(self, id: Peer, cost: int) -> None:
        self.id = id
        self.cost = cost

    def url(self, announced: list[str]) -> str:
        """The address of the other node, which announces these."""
        raise NotImplementedError

    def perform(self, effect: SendFrames | SendOnLine | DismissLine | CloseLine) -> None:
        """Perform an effect on this connection."""
        match effect:
            case SendFrames(buffers=buffers):
                self.send_buffers(buffers)
            case SendOnLine(message=message):
                self.send_buffers([encode(message)])
            case DismissLine(code=code, text=text):
                self.dismiss(code, text)
            case CloseLine():
                self.drop()
            case _:
                assert_never(effect)

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send frames."""
        raise NotImplementedError

    def dismiss(self, code: Code, text: str) -> None:
        """Say why, and close."""
        raise NotImplementedError

    def drop(self) -> None:
        """Close at once."""
        raise NotImplementedError


class IncomingLink(LinkConnection):
    """The other node connected to this one."""

    def __init__(self, peer: PeerState, cost: int) -> None:
        super().__init__(peer.id, cost)
        self.peer = peer

    def url(self, announced: list[str]) -> str:
        """The address that the other node names. If it listens on all addresses, the one that it connects from."""
        for url in announced:
            if url.startswith(("tcp://", "tls://")):
                scheme, host, port = parse_url(url)
                if host in ("0.0.0.0", "::"):
                    host = self.peer.connection.peer.rpartition(":")[0]
                return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        return announced[0] if announced else ""

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self.peer.send_buffers(buffers)

    def dismiss(self, code: Code, text: str) -> None:
        self.peer.dismiss(code, text)

    def drop(self) -> None:
        self.peer.connection.abort()


class LinkOwner(Protocol):
    """Hears of the events on a connection that this node opened."""

    def opened(self, connection: LinkConnection) -> None:
        """The other node is there, or there again."""

    def is_linked(self, connection: LinkConnection) -> bool:
        """Whether the other node of a connection has introduced itself."""

    def lost(self, connection: LinkConnection) -> None:
        """The connection is gone; it is being opened again."""

    def received(self, items: list[Item], connection: LinkConnection) -> None:
        """Messages and batches came in."""


class OutgoingLink(LinkConnection):
    """This node connects to the other one, and connects again whenever the connection breaks."""

    def __init__(
        self, number: int, url: str, cost: int, *, node_name: str, config: Config, owner: LinkOwner
    ) -> None:
        super().__init__(("link", number), cost)
        self.to = url
        """The address that this node connects to."""
        self.problem = ""
        """Why there is no link, in the other node's words or ours."""
        self._owner = owner
        self._link = NodeConnection(url, node_name, self, config, role="node", on_problem=self._waits_because)
        self._task: asyncio.Task[None] | None = None

    def url(self, announced: list[str]) -> str:
        """The address that this node connects to, whatever the other node announces."""
        return self.to

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._open())

    async def _open(self) -> None:
        while True:
            try:
                await self._link.open(float("inf"))
                return
            except (ReknitError, OSError) as error:
                self._waits_because(str(error))
            await asyncio.sleep(RETRY_S)

    def _waits_because(self, why: str) -> None:
        if why != self.problem:
            self.problem = why
            log.warning("the link to %s waits: %s", self.to, why)

    async def stop(self) -> None:
        """Disconnect, and do not reconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self._link.send_buffers(buffers)

    def dismiss(self, code: Code, text: str) -> None:
        self.problem = text
        log.error("no link to %s: %s", self.to, text)
        self._link.drop()

    def drop(self) -> None:
        self._link.drop()

    # -- the connection's side

    def connected(self, welcome: Welcome) -> None:
        """The other node is there, or there again."""
        self._owner.opened(self)

    def disconnected(self) -> None:
        """The connection broke. It is being opened again."""
        if self._link.goodbye_text and not self._owner.is_linked(self):
            self.problem = self._link.goodbye_text
        self._owner.lost(self)

    def received(self, items: list[Item]) -> None:
        """Messages and batches came in."""
        self._owner.received(items, self)
        if self.problem and self._owner.is_linked(self):
            self.problem = ""

"""A visit of an AMQP client: links that are opened one after the other, and what the node says about each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from reknit.testing.fabric.nodes import AMQP_PORT, FabricNode
from reknit.testing.fabric.programs.amqp.client import AmqpClient

ANSWER_S: Final = 8.0
"""How long the node may take to answer."""


class AmqpVisit:
    """One connection. Raises `OSError` when it breaks, or no answer comes."""

    def __init__(self, client: AmqpClient, session: Any, news: list[tuple[str, Any, bytes]]) -> None:
        self._client, self.session, self._news = client, session, news
        self._count = 0

    async def news(self, is_wanted: Callable[[str, Any], bool]) -> tuple[Any, bytes]:
        """The next thing that is wanted among those that the node said: its object, and the bytes of a message."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                for at, (name, what, data) in enumerate(self._news):
                    if is_wanted(name, what):
                        del self._news[at]
                        return what, data
                await asyncio.wait((self._client.over,), timeout=0.01)
                if self._client.over.done():
                    await self._client.over

    def sender(self, address: str | None, change: Callable[[Any], None] = lambda link: None) -> Any:
        """Attach a link to a topic; without an address, each message names its topic."""
        self._count += 1
        return self._open(self.session.sender(f"out{self._count}"), "target", address, change)

    def receiver(self, address: str, change: Callable[[Any], None] = lambda link: None) -> Any:
        """Attach a link from a topic."""
        self._count += 1
        return self._open(self.session.receiver(f"in{self._count}"), "source", address, change)

    def _open(self, link: Any, end: str, address: str | None, change: Callable[[Any], None]) -> Any:
        if address is not None:
            getattr(link, end).address = address
        change(link)
        link.open()
        self._client.turn()
        return link

    async def condition(self, link: Any) -> str:
        """The condition with which the node closes a link."""
        closed, _ = await self.news(
            lambda name, what: name == "PN_LINK_REMOTE_CLOSE" and what.name == link.name
        )
        return str(closed.remote_condition.name) if closed.remote_condition else ""

    async def credit(self, link: Any) -> None:
        """Wait until a link may send."""
        await self.news(
            lambda name, what: name == "PN_LINK_FLOW" and what.name == link.name and what.credit > 0
        )

    async def send(self, link: Any, data: bytes, is_settled: bool = False) -> Any:
        """Send a message; gives the delivery with its outcome, unless it was settled before."""
        self._count += 1
        delivery = link.delivery(str(self._count))
        tag = delivery.tag
        link.stream(data)
        if is_settled:
            delivery.settle()
        link.advance()
        self._client.turn()
        if is_settled:
            return None
        settled, _ = await self.news(lambda name, what: name == "settled" and what.tag == tag)
        return settled

    async def message(self) -> bytes:
        """The next message on a receiver; it is accepted."""
        delivery, data = await self.news(lambda name, what: name == "message")
        delivery.update(delivery.ACCEPTED)
        delivery.settle()
        self._client.turn()
        return data

    def turn(self) -> None:
        """Send what is to be sent."""
        self._client.turn()


@contextlib.asynccontextmanager
async def amqp_visit(node: FabricNode, container: str) -> AsyncIterator[AmqpVisit]:
    """Connect, and leave at the end. Raises `OSError`."""
    news: list[tuple[str, Any, bytes]] = []

    def on_event(name: str, what: Any) -> None:
        if name != "PN_DELIVERY":
            news.append((name, what, b""))
        elif what.link is not None and what.link.is_receiver and what.readable and not what.partial:
            data = what.link.recv(what.pending)
            what.link.advance()
            news.append(("message", what, data))
        elif what.settled:
            news.append(("settled", what, b""))

    client = AmqpClient(container, on_event)
    try:
        session = await client.open(node.host.address, AMQP_PORT)
        yield AmqpVisit(client, session, news)
    finally:
        client.abort()

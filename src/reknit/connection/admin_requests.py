"""Admin requests to the node over a session's connection: `status`, `ledger` and so on, each with its reply."""

from __future__ import annotations

import asyncio
from typing import Any

from reknit.connection.node_connection import NodeConnection
from reknit.errors import Gone, NotConnected, Refused
from reknit.outcome import Code
from reknit.wire.codec import Raw
from reknit.wire.messages import Answer, Ask


class AdminRequests:
    """The requests that are open on one connection."""

    def __init__(self, connection: NodeConnection) -> None:
        self._connection = connection
        self._count = 0
        self._open: dict[int, asyncio.Future[tuple[Answer, bytes]]] = {}
        self._announced: Answer | None = None
        """The answer whose bytes come next."""

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, what: str, args: dict[str, Any]) -> tuple[Any, bytes]:
        """The answer's body, and the bytes that came with it. Raises `NotConnected`, `Gone`, `Refused`."""
        if not self._connection.is_up:
            raise NotConnected(self._connection.url, "the connection is lost and being reopened")
        self._count += 1
        self._connection.send(
            Ask(self._count, what, args)
        )  # before it counts as open: it may not be encodable
        future = self._open[self._count] = asyncio.get_running_loop().create_future()
        answer, data = await future
        if answer.code == Code.OUT_OF_RANGE:
            raise Gone(answer.body["first_held"], answer.text)
        if answer.code != Code.OK:
            raise Refused(answer.code, answer.text)
        return answer.body, data

    def take(self, item: Answer | Raw) -> None:
        """An answer came, or the bytes that it announced."""
        if isinstance(item, Raw):
            answer, self._announced = self._announced, None
            if answer is not None:
                self._resolve(answer, item.data)
        elif item.size:
            self._announced = item
        else:
            self._resolve(item, b"")

    def _resolve(self, answer: Answer, data: bytes) -> None:
        future = self._open.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result((answer, data))

    def lost(self) -> None:
        """The connection is gone, and its answers with it: raise `NotConnected` in everyone who waits."""
        self._announced = None
        requests, self._open = self._open, {}
        for future in requests.values():
            if not future.done():
                text = "the connection broke before the answer arrived"
                future.set_exception(NotConnected(self._connection.url, text))

"""Questions to the node over a session's connection, and how their answers find back to who asked."""

from __future__ import annotations

import asyncio
from typing import Any

from reknit.connection.node_connection import Link
from reknit.errors import Gone, NotConnected, Refused
from reknit.outcome import Code
from reknit.wire.codec import Raw
from reknit.wire.messages import Answer, Ask


class Questions:
    """Those that are open."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._count = 0
        self._open: dict[int, asyncio.Future[tuple[Answer, bytes]]] = {}
        self._announced: Answer | None = None
        """Its bytes come next."""

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, what: str, args: dict[str, Any]) -> tuple[Any, bytes]:
        """The answer's body, and the bytes that came along. Raises `NotConnected`, `Gone`, `Refused`."""
        if not self._link.is_up:
            raise NotConnected(self._link.url, "the connection is being opened again")
        self._count += 1
        future = self._open[self._count] = asyncio.get_running_loop().create_future()
        self._link.send(Ask(self._count, what, args))
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
                self._answered(answer, item.data)
        elif item.size:
            self._announced = item
        else:
            self._answered(item, b"")

    def _answered(self, answer: Answer, data: bytes) -> None:
        future = self._open.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result((answer, data))

    def lost(self) -> None:
        """The connection is gone, and with it the answers: everyone who waits is told."""
        self._announced = None
        questions, self._open = self._open, {}
        for future in questions.values():
            if not future.done():
                text = "the connection broke before the answer came"
                future.set_exception(NotConnected(self._link.url, text))

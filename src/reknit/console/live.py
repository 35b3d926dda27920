"""`/api/v1/live`: figures as Server-Sent Events, whenever they change. `/reknit.js` reads it as it reads any tunnel.

Each event is the newest answer to one of the resources that were asked for; what a page missed while it was cut off is
of no interest, so every reconnection is a complete one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from reknit import environment
from reknit.errors import LocalError
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.formats import FORMATS
from reknit.gateway.http.groups import chunk
from reknit.gateway.http.origins import OriginPolicy
from reknit.gateway.http.requests import HttpRequest, answer_head

ASKED_MAX: Final = 6
PERIOD_S: Final = 2.0
REST: Final = 40
"""Figures that take long are sent seldom: at most a fortieth of the time goes into them."""
HEARTBEAT_S: Final = 10.0
UNREAD_BYTES_MAX: Final = 256 << 10
"""A page that does not read gets nothing more until it does."""
ASK: Final = "ask"
Look = Callable[[str], Awaitable[bytes]]
"""The answer to a resource with its parameters, as JSON."""


class LiveFigures:
    """Sends figures to the pages that are open."""

    def __init__(self, origins: OriginPolicy) -> None:
        self._origins = origins
        self._now = asyncio.get_running_loop().time

    async def answer(self, connection: HttpConnection, request: HttpRequest, look: Look) -> None:
        """Send the answers to `ask=RESOURCE%3Fparameters`, which may come several times. Raises `LocalError`."""
        asked = [value for name, value in parse_qsl(request.query) if name == ASK]
        is_again = any(name == "from" for name, _ in parse_qsl(request.query))
        if not 0 < len(asked) <= ASKED_MAX:
            raise LocalError(f"say what to send: ask=RESOURCE, one to {ASKED_MAX} times")
        if refusal := connection.tunnel_refusal(request.identity):
            connection.answer_refusal(refusal)
            return
        headers = [("Content-Type", FORMATS["sse"].content_type), ("Cache-Control", "no-store")]
        headers += [("X-Accel-Buffering", "no"), *self._origins.cors(request)]
        is_raw = request.version == "1.0"
        if not is_raw:
            headers.append(("Transfer-Encoding", "chunked"))
        connection.become_tunnel(FORMATS["sse"], answer_head(200, headers, keep_alive=False))
        page = _Page(connection, asked, look, is_raw)
        page.open(is_again)
        await page.run()


class _Page:
    """One open page."""

    def __init__(self, connection: HttpConnection, asked: list[str], look: Look, is_raw: bool) -> None:
        self._connection = connection
        self._asked = asked
        self._look = look
        self._is_raw = is_raw
        self._source = environment.token_hex(8)
        self._seq = 0
        self._last: dict[str, bytes] = {}
        self._now = asyncio.get_running_loop().time
        self._said_at = self._now()

    def open(self, is_again: bool) -> None:
        """Say that figures follow."""
        opened = {"state": "recovered" if is_again else "live", "heartbeat_s": HEARTBEAT_S}
        self._write(b"retry: 1000\nid: now\nevent: opened\ndata: %b\n\n" % msgspec.json.encode(opened))

    async def run(self) -> None:
        """Send what changed, until the page is closed."""
        while not self._connection.is_closing:
            began = self._now()
            if self._connection.waiting_bytes < UNREAD_BYTES_MAX:
                for number, asked in enumerate(self._asked):
                    await self._send(number, asked)
            took_s = self._now() - began
            if self._now() - self._said_at > HEARTBEAT_S / 2:
                self._write(b"id: now\nevent: heartbeat\ndata: {}\n\n")
            await asyncio.sleep(max(PERIOD_S, REST * took_s))

    async def _send(self, number: int, asked: str) -> None:
        body = await self._look(asked)
        if self._last.get(asked) == body or self._connection.is_closing:
            return
        self._last[asked] = body
        self._seq += 1  # one source on several topics: its numbers grow on each
        event = {
            "topic": f"live/{number}",
            "source": self._source,
            "seq": self._seq,
            "time_us": environment.time_us(),
            "payload": body.decode(),
        }
        self._write(b"id: now\ndata: %b\n\n" % msgspec.json.encode(event))

    def _write(self, data: bytes) -> None:
        self._said_at = self._now()
        self._connection.write(data if self._is_raw else chunk(data))

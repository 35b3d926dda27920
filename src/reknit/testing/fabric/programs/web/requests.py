"""HTTP as the programs of a simulation speak it: one request on a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from reknit.client.http_request import read_body, read_head
from reknit.errors import MalformedFrame
from reknit.testing.fabric.nodes import HTTP_PORT, FabricNode

QUIET_S: Final = 4.0
"""A connection on which nothing comes for so long, not even a heartbeat, counts as broken."""
FAILURES: Final = (OSError, MalformedFrame)
"""How a request may fail while faults happen."""


class WebAnswer:
    """An answer whose body is still to come."""

    def __init__(
        self,
        code: int,
        headers: Mapping[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.code, self.reader, self.writer = code, reader, writer
        self._body = read_body(reader, headers)

    async def part(self) -> bytes:
        """The next bytes of the body; empty at its end. Raises `TimeoutError` and the like."""
        return await asyncio.wait_for(anext(self._body, b""), QUIET_S)

    async def first_event(self) -> bytes:
        """The first of the events in the body, with the empty line after it; or less, if the body ends before."""
        found = b""
        while b"\n\n" not in found and (data := await self.part()):
            found += data
        return found

    async def raw(self) -> bytes:
        """The next bytes on the connection, after an upgrade."""
        return await asyncio.wait_for(self.reader.read(1 << 16), QUIET_S)


@contextlib.asynccontextmanager
async def request(
    node: FabricNode,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    version: str = "1.1",
) -> AsyncIterator[WebAnswer]:
    """Make a request. Raises `FAILURES`."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection(node.host.address, HTTP_PORT), QUIET_S)
    try:
        lines = [
            f"{method} {path} HTTP/{version}",
            f"Host: {node.host.address}",
            f"Content-Length: {len(body)}",
        ]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        code, found = await asyncio.wait_for(read_head(reader), 3 * QUIET_S)
        yield WebAnswer(code, found, reader, writer)
    finally:
        writer.transport.abort()


async def answer_to(
    node: FabricNode, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, bytes]:
    """Make a request, and read its whole answer: the status, and the body. Raises `FAILURES`."""
    async with request(node, method, path, {"Connection": "close", **(headers or {})}, body) as answer:
        found = b""
        while part := await answer.part():
            found += part
        return answer.code, found

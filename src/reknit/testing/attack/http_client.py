"""An HTTP client that says exactly what an attacker wants to say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

ANSWER_S: Final = 5.0
STREAM_S: Final = 0.6
"""How long a stream that was opened is listened to."""


class HttpAnswer(NamedTuple):
    """What came back, as far as it came."""

    status: int
    head: str
    body: bytes

    @property
    def words(self) -> str:
        """The status and the first line of the body."""
        return f"{self.status} {self.body[:120].decode('utf-8', 'replace').strip()}"


async def request(
    port: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> HttpAnswer:
    """Send one request and read its answer; of one that stays open, what comes in a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        async with asyncio.timeout(ANSWER_S):
            answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        return HttpAnswer(int(answered.split()[1]), answered, await _rest(reader))
    except (OSError, EOFError, TimeoutError) as error:
        return HttpAnswer(0, "", f"no answer: {error!r}".encode())
    finally:
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    got = bytearray()
    try:
        async with asyncio.timeout(STREAM_S):
            while data := await reader.read(1 << 16):
                got += data
    except (TimeoutError, OSError):
        pass
    return bytes(got)

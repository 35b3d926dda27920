"""One HTTP/1.1 request, with a response body that is read as it arrives: for tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from reknit.config import Config
from reknit.errors import InvalidConfig, MalformedFrame
from reknit.transport.tcp import NO_USERS
from reknit.transport.tls import client_tls

READ_BYTES: Final = 64 << 10
_CODE: Final = re.compile(r"[1-9][0-9][0-9]")
_CHUNK: Final = re.compile(rb"\s*([0-9A-Fa-f]{1,15})\s*(;[^\n]*)?\r\n")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
HEAD_S: Final = 30.0
"""How long connecting may take, and how long the head of a response may take to come."""


class HttpAnswer(NamedTuple):
    """The head of a response, with its header names in lower case, and its body as it comes."""

    code: int
    headers: dict[str, str]
    parts: AsyncIterator[bytes]


def tls_of(url: str, tls: ssl.SSLContext | None, config: Config) -> ssl.SSLContext | None:
    """The given context, or the one of `[transport]`, for an address with TLS. Raises `InvalidConfig`."""
    return (tls or client_tls(config)) if url.startswith("https:") else None


@contextlib.asynccontextmanager
async def http_request(
    url: str,
    form: Mapping[str, str | bytes],
    token: str,
    tls: ssl.SSLContext | None,
    method: str = "GET",
) -> AsyncIterator[HttpAnswer]:
    """One request on a connection of its own. `tls` is of `tls_of`. Raises `MalformedFrame`, `OSError`."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InvalidConfig("address", f"{parts.scheme}://{parts.hostname}", NO_USERS)
    is_tls = parts.scheme == "https"
    host, port = parts.hostname or "127.0.0.1", parts.port or (443 if is_tls else 80)
    async with asyncio.timeout(HEAD_S):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        body = urlencode(form, quote_via=quote).encode()
        path = f"{parts.path}/kn" + (f"?{body.decode()}" if method == "GET" else "")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if method == "POST":
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
        head = "\r\n".join([*lines, "", ""]).encode()
        writer.write(head + body if method == "POST" else head)
        async with asyncio.timeout(HEAD_S):
            code, headers = await read_head(reader)
        yield HttpAnswer(code, headers, read_body(reader, headers))
    finally:
        writer.transport.abort()


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status code and the headers of a response. Raises `MalformedFrame`, `OSError`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the server closed the connection before it answered") from None
    except asyncio.LimitOverrunError:
        raise MalformedFrame(
            "the head of an HTTP response is too long", "the start of the response"
        ) from None
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not _CODE.fullmatch(words[1]):
        raise MalformedFrame(f"{first[:40]!r} is not an HTTP/1 response", "the start of the response")
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body of a response, as it comes. Raises `MalformedFrame`, `OSError`."""
    try:
        async for data in _parts(reader, headers):
            yield data
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the server closed the connection in the middle of its answer") from None
    except asyncio.LimitOverrunError:
        raise MalformedFrame("the length of a chunk does not end", "the body of an HTTP response") from None


async def _parts(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := _chunk_bytes(await reader.readuntil(b"\r\n")):
            async for data in _exactly(reader, size):
                yield data
            await reader.readexactly(2)
    elif "content-length" in headers:
        async for data in _exactly(reader, _length_bytes(headers["content-length"])):
            yield data
    else:
        while data := await reader.read(READ_BYTES):
            yield data


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        data = await reader.read(min(size, READ_BYTES))
        if not data:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(data)
        yield data


def _chunk_bytes(line: bytes) -> int:
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise MalformedFrame(f"{line[:40]!r} is not the length of a chunk", "the body of an HTTP response")
    return int(found[1], 16)


def _length_bytes(text: str) -> int:
    if not _LENGTH.fullmatch(text):
        raise MalformedFrame(f"{text[:40]!r} is not a Content-Length", "the head of an HTTP response")
    return int(text)

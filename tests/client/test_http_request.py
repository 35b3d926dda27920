"""Answers of HTTP servers that are not HTTP: one known error, whatever they are."""

from __future__ import annotations

import asyncio

import pytest

from reknit.client.http_request import read_body, read_head
from reknit.errors import MalformedFrame


def body_of(answer: bytes) -> bytes:
    async def read() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(answer)
        reader.feed_eof()
        _, headers = await read_head(reader)
        return b"".join([data async for data in read_body(reader, headers)])

    return asyncio.run(read())


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_chunks_and_their_extensions_are_read() -> None:
    assert body_of(CHUNKED + b"3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n") == b"abc0123456789"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 2000000000 OK\r\n\r\n",
        CHUNKED + b"-3\r\nabc\r\n",
        CHUNKED + b"+3\r\nabc\r\n",
        CHUNKED + b"3_0\r\nabc\r\n",
        CHUNKED + b"f" * 70_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nabc",
    ],
)
def test_a_length_or_a_code_that_is_none_is_refused(answer: bytes) -> None:
    with pytest.raises(MalformedFrame):
        body_of(answer)

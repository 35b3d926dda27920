"""A peer that speaks the protocol, and says in it what no client would say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from reknit.batch import Batch
from reknit.wire.codec import Decoder, encode
from reknit.wire.messages import VERSION, Bye, Hello, Message

HEAR_S: Final = 2.0

M = TypeVar("M")


class Closed(Exception):
    """The node closed the connection."""


class RawPeer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = Decoder()
        self._heard: list[Any] = []

    async def say(self, *items: Message | Batch | bytes) -> None:
        """Send messages, batches or bytes."""
        for item in items:
            match item:
                case Message():
                    self._writer.write(encode(item))
                case Batch():
                    self._writer.write(item.data)
                case bytes():
                    self._writer.write(item)
        await self._writer.drain()

    def close(self) -> None:
        """Leave without a word."""
        self._writer.close()

    async def hear(self, *kinds: type[M], patience_s: float = HEAR_S) -> M:
        """The next message of one of these kinds. Raises `Closed`, also with `Bye` unless that is one of them."""
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    while self._heard:
                        item = self._heard.pop(0)
                        if isinstance(item, kinds):
                            return item
                        if isinstance(item, Bye):
                            raise Closed(item.text)
                    data = await self._reader.read(1 << 20)
                    if not data:
                        raise Closed("without a word")
                    self._heard += self._decoder.feed(data)
        except ConnectionError as error:
            raise Closed(str(error)) from None


@asynccontextmanager
async def raw_peer(
    port: int, token: str = "", role: str = "client", greets: bool = True
) -> AsyncIterator[RawPeer]:
    """A peer that has introduced itself, unless told not to."""
    peer = RawPeer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        if greets:
            await peer.say(Hello(VERSION, "mallory", token, role))
        yield peer
    finally:
        peer.close()

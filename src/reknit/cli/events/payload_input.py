"""The payloads that `reknit pub` publishes: copies of one, or lines of stdin, in lists, at a limited rate."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

READ_BYTES = 1 << 18
LIST_EVENTS_MAX = 1_000
TICK_S = 0.02


async def copies(payload: bytes, count: int) -> AsyncIterator[list[bytes]]:
    """`count` copies of a payload."""
    while count > 0:
        size = min(count, LIST_EVENTS_MAX)
        yield [payload] * size
        count -= size


async def lines(file: int, count: int | None = None) -> AsyncIterator[list[bytes]]:
    """The lines of a file as they arrive, without line ends. A last line without an end counts too."""
    rest = b""
    async with aclosing(_chunks(file)) as chunks:
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            if count is not None:
                whole = whole[:count]
                count -= len(whole)
            if whole:
                yield whole
            if count == 0:
                return
    if rest:
        yield [rest]


async def _chunks(file: int) -> AsyncGenerator[bytes, None]:
    """Chunks of a file, read by a daemon thread: a read of a terminal cannot be cancelled."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(4)

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while isinstance(chunk, bytes) and chunk:
            room.acquire()
            try:
                chunk = os.read(file, READ_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:  # the loop is closed
                return

    threading.Thread(target=read, name="reknit-stdin", daemon=True).start()
    while chunk := await queue.get():
        if isinstance(chunk, OSError):
            raise chunk
        yield chunk
        room.release()


async def paced(source: AsyncIterator[list[bytes]], rate: float | None) -> AsyncIterator[list[bytes]]:
    """The same payloads, at most `rate` per second."""
    if rate is None:
        async for payloads in source:
            yield payloads
        return
    loop = asyncio.get_running_loop()
    size = max(1, int(rate * TICK_S))
    due = loop.time()
    async for payloads in source:
        for at in range(0, len(payloads), size):
            part = payloads[at : at + size]
            due = max(due, loop.time() - TICK_S)
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            yield part
            due += len(part) / rate

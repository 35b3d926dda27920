"""TCP proxies between nodes, and between clients and nodes: connections can be cut, held and slowed down."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from enum import Enum

from reknit.processes.process import free_port

CHUNK_BYTES = 64 << 10


class Mode(Enum):
    """What a proxy does with its connections."""

    OPEN = "open"
    CUT = "cut"
    """Every connection is closed, and new ones are closed at once."""
    SILENT = "silent"
    """Connections stay open, and nothing arrives until this ends."""
    SLOW = "slow"


class Proxy:
    """Listens on `port` and forwards to `target`. Made by `Proxies.add`, and changed from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.port, self.target = free_port(), target
        self.delay_s = 0.0
        self._loop = loop
        self._mode = Mode.OPEN
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def change(self, mode: Mode, delay_s: float = 0.0) -> None:
        """Treat connections like this from now on."""
        asyncio.run_coroutine_threadsafe(self._change(mode, delay_s), self._loop).result()

    async def _change(self, mode: Mode, delay_s: float) -> None:
        self._mode, self.delay_s = mode, delay_s
        if mode is Mode.SILENT:
            self._speaks.clear()
        else:
            self._speaks.set()
        if mode is Mode.CUT:
            for writer in self._writers:
                writer.transport.abort()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Listen no more, and close every connection."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if self._mode is not Mode.CUT:
                await self._speaks.wait()
                far = await asyncio.open_connection("127.0.0.1", self.target)
                await self._join((reader, writer), far)
        writer.transport.abort()

    async def _join(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Forward both ways until either side ends."""
        writers = {near[1], far[1]}
        self._writers |= writers
        try:
            tasks = [
                asyncio.ensure_future(self._pump(near[0], far[1])),
                asyncio.ensure_future(self._pump(far[0], near[1])),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        finally:
            self._writers -= writers
            for writer in writers:
                writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._speaks.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()


class Proxies:
    """All proxies of a fabric, on one event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def add(self, target: int) -> Proxy:
        """A proxy to a port, which listens from now on."""
        proxy = Proxy(self._loop, target)
        self._proxies.append(proxy)
        asyncio.run_coroutine_threadsafe(proxy.open(), self._loop).result()
        return proxy

    def close(self) -> None:
        """Close all connections."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""The servers of the tunnel benchmark. Each reads requests from stdin, and publishes within its process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import uvloop

EVENT_BYTES = 256
LIMIT = 200_000


def payload(number: int) -> bytes:
    """An event of 256 bytes: a mark, its number, the time, and padding."""
    return f"~{number}:{time.time_ns()}:".encode().ljust(EVENT_BYTES, b"x")


class Publishing(Protocol):
    """The operations of a server."""

    async def publish(self, number: int) -> None:
        """Publish an event. Returns when it is accepted."""

    async def settle(self) -> None:
        """Return when everything that was published is sent."""

    async def stop(self) -> None: ...


class Reknit:
    """A node with its journal on disk, or in memory."""

    def __init__(self, directory: Path, port: int, in_memory: bool = False) -> None:
        from reknit.config import Config, HttpSettings, JournalSettings, NodeSettings
        from reknit.server import build_node

        http = HttpSettings(listen=f"127.0.0.1:{port}", tunnels_per_address_max=LIMIT, tunnels_max=LIMIT)
        journal = JournalSettings(kind="memory" if in_memory else "disk")
        self._node = build_node(
            Config(node=NodeSettings(listen=(), data_dir=directory), journal=journal, http=http)
        )

    async def start(self) -> int:
        from reknit.gateway.http.server import HttpServer

        await self._node.start()
        http = self._node.doors["http"]
        assert isinstance(http, HttpServer)
        self._http = http
        return int(self._http.url.rpartition(":")[2])

    async def publish(self, number: int) -> None:
        await self._http.publishers.publish("what/chat", payload(number), {})

    async def settle(self) -> None:
        pass

    async def stop(self) -> None:
        await self._node.stop()


class Starlette:
    """A streaming response with a queue per client, as users of Starlette write it."""

    def __init__(self, directory: Path, port: int) -> None:
        import uvicorn
        from starlette.applications import Starlette as Application
        from starlette.requests import Request
        from starlette.responses import StreamingResponse
        from starlette.routing import Route

        self._queues: dict[asyncio.Queue[bytes], None] = {}

        async def stream(request: Request) -> StreamingResponse:
            queue: asyncio.Queue[bytes] = asyncio.Queue(1_000)

            async def events() -> Any:
                self._queues[queue] = None
                try:
                    yield b"event: opened\ndata: {}\n\n"
                    while True:
                        yield await queue.get()
                finally:
                    del self._queues[queue]

            return StreamingResponse(events(), media_type="text/event-stream")

        config = uvicorn.Config(
            Application(routes=[Route("/sse", stream)]),
            host="127.0.0.1",
            port=port,
            log_level="critical",
            loop="uvloop",
            http="httptools",
            backlog=4096,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)

    async def start(self) -> int:
        self._task = asyncio.create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    async def publish(self, number: int) -> None:
        data = b"id: %d\ndata: %b\n\n" % (number, payload(number))
        for queue in self._queues:
            if queue.full():
                await queue.put(data)
            else:
                queue.put_nowait(data)
        await asyncio.sleep(0)

    async def settle(self) -> None:
        while any(queue.qsize() for queue in self._queues):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True


class Program:
    """Executes the requests, one after the other."""

    def __init__(self, server: Reknit | Starlette) -> None:
        self._server = server
        self._number = 0

    async def run(self) -> None:
        self._say(port=await self._server.start())
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            await self._do(json.loads(line))

    def _say(self, **what: Any) -> None:
        print(json.dumps(what), flush=True)

    async def _do(self, what: dict[str, Any]) -> None:
        match what["do"]:
            case "publish":
                await self._publish(what["count"], what["window"])
            case "pace":
                await self._pace(what["count"], what["per_s"])
            case "missed":
                self._number = what["first"]
                await self._publish(what["count"], 100)
                self._say()
            case "memory":
                gc.collect()
                self._say(bytes=_rss())
            case "cpu":
                self._say(s=time.process_time())
            case "stop":
                await self._server.stop()
                self._say()
            case "sync":
                self._say()

    async def _next(self) -> None:
        number, self._number = self._number, self._number + 1
        await self._server.publish(number)

    async def _publish(self, count: int, window: int) -> None:
        """Publish with at most `window` events in flight."""
        if window == 1:
            for _ in range(count):
                await self._next()
                await self._server.settle()
            return
        for start in range(0, count, window):
            await asyncio.gather(*(self._next() for _ in range(min(window, count - start))))

    async def _pace(self, count: int, per_s: float) -> None:
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / per_s - time.perf_counter()))
            await self._next()


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    kind, directory, port = sys.argv[1:]
    place = (Path(directory), int(port))
    uvloop.run(Program(Starlette(*place) if kind == "starlette" else Reknit(*place, kind != "reknit")).run())

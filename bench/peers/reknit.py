"""reknit itself: a node with its journal on disk or in memory, and its own client."""

from __future__ import annotations

import asyncio
import sysconfig
from collections import deque
from pathlib import Path

import reknit
from bench.job import Job, Journal, Load
from bench.peers.base import AsyncPublisher, Peer, Server, Sink
from reknit.client.publish.publisher import Publisher

PATIENCE_S = 20.0


def command() -> Path:
    return Path(sysconfig.get_path("scripts")) / "reknit"


def session_of(job: Job) -> reknit.Session:
    return reknit.connect(f"tcp://127.0.0.1:{job.server_port}", wait_s=PATIENCE_S)


class ReknitPublisher:
    def __init__(self, session: reknit.Session, publisher: Publisher, call_bytes: int) -> None:
        self._session = session
        self._calls_max = session.config.limits.publish_window_bytes // call_bytes
        self._publisher = publisher
        self._calls: deque[asyncio.Future[None]] = deque()
        self.send = publisher.send
        self.flush = publisher.flush

    async def send_batch(self, payloads: list[bytes]) -> None:
        self._calls.append(self._publisher.publish_many(payloads))
        if len(self._calls) >= self._calls_max:
            await self._calls.popleft()

    async def close(self) -> None:
        await self._session.close()


class Reknit(Peer):
    name = "reknit"
    keeps = "on disk, synced before delivery"
    packages = ("reknit",)

    def missing(self) -> str | None:
        return None if command().exists() else "no reknit command beside python: make setup"

    def server(self, place: Path, port: int, load: Load) -> Server:
        kept = ("--journal", "memory") if load.journal is Journal.MEMORY else ("--data", str(place / "node"))
        return Server((str(command()), "up", "--listen", f"tcp://127.0.0.1:{port}", *kept), port)

    async def publisher(self, job: Job) -> AsyncPublisher:
        session = await session_of(job).open()
        return ReknitPublisher(
            session, session.publisher(f"bench/{job.lane}"), job.per_batch * (job.load.size + 4)
        )

    async def subscribe(self, job: Job, sink: Sink) -> None:
        async with session_of(job) as session, session.subscribe("bench/*") as events:
            sink.ready()
            if sink.is_batch:
                async for batch in events.batches():
                    if sink.many(batch.payloads()):
                        break
            else:
                take = sink.one
                async for event in events:
                    if take(event.payload):
                        break

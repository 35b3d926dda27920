"""NATS JetStream through nats-py: file storage, acks in a window, a pull consumer that acks its fetches."""

from __future__ import annotations

from asyncio import Future
from pathlib import Path
from typing import Self

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, PubAck, StorageType, StreamConfig

from bench.job import Job, Load, Mode
from bench.peers.base import AsyncPublisher, Server, Sink, pack_by_hand
from bench.peers.nats import PATIENCE_S, Nats, connect, server_argv

WINDOW_EVENTS = 4_000
WINDOW_BATCHES = 100  # the server refuses more than 128 MB in flight into a stream
# A fetch ends when it is full or its time is over. The time is so short that the wait of the last one does not count.
FETCH_EVENTS = 512
FETCH_TIMEOUT_S = 0.05
ACKS_PENDING_MAX = 100_000
STREAM = "bench"


async def add_stream(context: JetStreamContext) -> None:
    await context.add_stream(StreamConfig(name=STREAM, subjects=["bench.*"], storage=StorageType.FILE))


class JetStreamPublisher:
    def __init__(self, client: Client, job: Job) -> None:
        window = WINDOW_BATCHES if job.load.mode is Mode.BATCH else WINDOW_EVENTS
        self._client = client
        self._context = client.jetstream(publish_async_max_pending=window, timeout=PATIENCE_S)
        self._subject = f"bench.{job.lane}"
        self._refused: list[BaseException] = []

    async def open(self) -> Self:
        await add_stream(self._context)
        return self

    async def send(self, payload: bytes) -> None:
        self._raise_refused()
        ack = await self._context.publish_async(self._subject, payload)
        ack.add_done_callback(self._on_ack)

    async def send_batch(self, payloads: list[bytes]) -> None:
        await self.send(pack_by_hand(payloads))

    def _on_ack(self, ack: Future[PubAck]) -> None:
        if error := ack.exception():
            self._refused.append(error)

    async def flush(self) -> None:
        await self._context.publish_async_completed()
        self._raise_refused()

    def _raise_refused(self) -> None:
        if self._refused:
            raise self._refused[0]

    async def close(self) -> None:
        await self._client.close()


class JetStream(Nats):
    name = "jetstream"
    keeps = "on disk, synced every 2 min"

    def server(self, place: Path, port: int, load: Load) -> Server:
        return Server(server_argv(place, port, jetstream=True), port)

    async def publisher(self, job: Job) -> AsyncPublisher:
        return await JetStreamPublisher(await connect(job), job).open()

    async def subscribe(self, job: Job, sink: Sink) -> None:
        client = await connect(job)
        context = client.jetstream(timeout=PATIENCE_S)
        await add_stream(context)
        consumer = ConsumerConfig(
            ack_policy=AckPolicy.ALL, deliver_policy=DeliverPolicy.ALL, max_ack_pending=ACKS_PENDING_MAX
        )
        pulling = await context.pull_subscribe("bench.*", stream=STREAM, config=consumer)
        sink.ready()
        await pull_all(pulling, 1 if job.load.mode is Mode.PACED else FETCH_EVENTS, sink)
        await client.close()


async def pull_all(pulling: JetStreamContext.PullSubscription, per_fetch: int, sink: Sink) -> None:
    take = sink.message if sink.is_batch else sink.one
    ended = False
    while not ended:
        try:
            messages = await pulling.fetch(per_fetch, timeout=FETCH_TIMEOUT_S)
        except TimeoutError:  # nothing yet
            continue
        for message in messages:
            ended = take(message.data)
        if messages:
            await messages[-1].ack()

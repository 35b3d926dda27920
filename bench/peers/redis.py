"""Redis streams through redis-py: XADD in pipelines, XREAD with a count, an append-only file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import redis

from bench.job import Job, Load, Mode
from bench.peers.base import Peer, Publisher, Server, Sink, pack_by_hand

PIPELINE_EVENTS = 500
PIPELINE_BATCHES = 4
READ_EVENTS = 1_000
READ_BATCHES = 8
BLOCK_MS = 100
FIELD = b"e"


def stream_of(lane: int) -> bytes:
    return b"bench:%d" % lane


class RedisPublisher:
    def __init__(self, job: Job) -> None:
        self._client = redis.Redis(host="127.0.0.1", port=job.server_port)
        self._pipeline = self._client.pipeline(transaction=False)
        self._stream = stream_of(job.lane)
        self._per_pipeline = PIPELINE_BATCHES if job.load.mode is Mode.BATCH else PIPELINE_EVENTS

    def send(self, payload: bytes) -> None:
        self._pipeline.xadd(self._stream, {FIELD: payload})
        if len(self._pipeline) >= self._per_pipeline:
            self._pipeline.execute()

    def send_batch(self, payloads: list[bytes]) -> None:
        self.send(pack_by_hand(payloads))

    def flush(self) -> None:
        self._pipeline.execute()

    def close(self) -> None:
        self._client.close()


class RedisEverysec(Peer):
    name = "redis"
    keeps = "in memory and on disk, synced every second"
    packages = ("redis",)
    appendfsync: ClassVar[str] = "everysec"

    def program(self) -> str | None:
        return shutil.which("redis-server")

    def missing(self) -> str | None:
        return None if self.program() else "no redis-server: apt-get install redis-server"

    def server(self, place: Path, port: int, load: Load) -> Server:
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(place),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.appendfsync,
            "auto-aof-rewrite-percentage": "0",
        }
        flags = (part for key, value in settings.items() for part in (f"--{key}", value))
        return Server(("redis-server", *flags), port)

    def publisher(self, job: Job) -> Publisher:
        return RedisPublisher(job)

    def subscribe(self, job: Job, sink: Sink) -> None:
        client = redis.Redis(host="127.0.0.1", port=job.server_port)
        places: dict[Any, Any] = {stream_of(lane): b"0" for lane in range(job.load.publishers)}
        count = READ_BATCHES if sink.is_batch else READ_EVENTS
        sink.ready()
        ended = False
        while not ended:
            answer: Any = client.xread(places, count=count, block=BLOCK_MS)
            for stream, entries in answer:
                ended = hand_over(entries, sink)
                places[stream] = entries[-1][0]
        client.close()


def hand_over(entries: Iterable[tuple[bytes, dict[bytes, bytes]]], sink: Sink) -> bool:
    take = sink.message if sink.is_batch else sink.one
    ended = False
    for _, fields in entries:
        ended = take(fields[FIELD])
    return ended


class RedisAlways(RedisEverysec):
    name = "redis-always"
    keeps = "in memory and on disk, synced before the reply"
    appendfsync = "always"

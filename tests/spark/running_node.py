"""A node for tests of Spark: a real one, in a thread of its own, and functions that publish batches to it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from prometheus_client import CollectorRegistry, generate_latest

from reknit.batch import Batch
from reknit.config import Config, load
from reknit.errors import NotConnected
from reknit.node.admin.metrics import NodeCollector
from reknit.node.node import Node
from reknit.server import build_node
from reknit.spark.blocking_connection import BlockingConnection
from reknit.transport.tls import NO_FILES, TlsFiles
from reknit.wire.messages import Ack, Refuse

T = TypeVar("T")

TIME_US = 1_700_000_000_000_000


class RunningNode:
    """A node that can be stopped and started again on the same port."""

    def __init__(
        self, directory: Path, name: str = "line1", listen: str = "tcp://127.0.0.1:0", **settings: object
    ) -> None:
        self.directory, self.name = directory, name
        self._settings = {key.replace("__", "."): value for key, value in settings.items()}
        self._listen = listen
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.node: Node | None = None
        self.start()

    @property
    def url(self) -> str:
        return self._listen

    def config(self) -> Config:
        overrides = {
            "node.name": self.name,
            "node.data_dir": str(self.directory),
            "node.listen": [self._listen],
            **self._settings,
        }
        return load(environ={}, overrides=overrides)

    def start(self) -> None:
        self.node = build_node(self.config())
        self.run(self.node.start())
        self._listen = self.node.urls[0]

    def stop(self) -> None:
        if self.node is not None:
            self.run(self.node.stop())
            self.node = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def metrics(self) -> str:
        """The metrics for Prometheus."""
        assert self.node is not None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(NodeCollector(self.node.figures, self._loop))
        return generate_latest(registry).decode()

    def keep(self, batches: Iterable[Batch]) -> None:
        """Publish batches; returns when they are durable."""
        keep(self.url, batches)


def keep(url: str, batches: Iterable[Batch], token: str = "", tls: TlsFiles = NO_FILES) -> None:
    """Publish batches without gaps to a node; returns when they are durable. Raises `NotConnected`."""
    batches, deadline = list(batches), time.monotonic() + 150
    wanted = {batch.source: batch.stop - 1 for batch in batches}
    with BlockingConnection(url, token, tls=tls) as link:
        link.send_bytes(b"".join(bytes(batch.data) for batch in batches))
        while wanted:
            message = link.receive()
            assert not isinstance(message, Refuse), message
            assert time.monotonic() < deadline, wanted
            if isinstance(message, Ack) and message.seq >= wanted.get(message.source, 1 << 63):
                del wanted[message.source]


def keep_on(url: str, batches: Iterable[Batch], patience_s: float = 60.0) -> None:
    """As `keep`, and again if the node is killed meanwhile: it drops the batches that it has."""
    batches, deadline = list(batches), time.monotonic() + patience_s
    while True:
        try:
            keep(url, batches)
            return
        except NotConnected:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Feeder:
    """Publishes from several sources at once, in steps, until it is stopped. `stop` returns the last seq of each."""

    def __init__(self, keep: Callable[[list[Batch]], None], names: Sequence[str], step: int = 40) -> None:
        self._keep, self._names, self._step = keep, names, step
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.published = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._is_over.wait(0.05):
                for name in self._names:
                    self._keep(batches(name, self.published + 1, self.published + 1 + self._step))
                self.published += self._step
        except BaseException as error:
            self._error = error

    def stop(self) -> int:
        """Stop after a whole step. Raises the error that ended it, if there is one."""
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the feeder still waits for a node"
        if self._error is not None:
            raise self._error
        return self.published


def source(name: str) -> bytes:
    """A source for tests, readable in hex dumps."""
    return name.encode().ljust(16, b".")


def batch(
    name: str, first: int, payloads: Sequence[bytes | str], topic: str = "plant/temp", **fields: Any
) -> Batch:
    """Events of source `name` from seq `first` on."""
    raw = [one.encode() if isinstance(one, str) else one for one in payloads]
    return Batch.build(source(name), topic, first, raw, **{"time_us": TIME_US, **fields})


def batches(
    name: str, first: int, stop: int, size: int = 10, topic: str = "plant/temp", **fields: Any
) -> list[Batch]:
    """Events `[first, stop)` of source `name`, `size` per batch; the payload is source and seq."""
    return [
        batch(name, low, [f"{name}-{seq}" for seq in range(low, min(low + size, stop))], topic, **fields)
        for low in range(first, stop, size)
    ]

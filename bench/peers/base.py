"""The interface of a subject: whether it can run here, its server, its publisher, its subscriber."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec

from bench.events import Check
from bench.job import Job, Load, Mode

pack_by_hand = msgspec.msgpack.Encoder().encode
unpack_by_hand = msgspec.msgpack.Decoder(list[bytes]).decode


class Server(msgspec.Struct, frozen=True):
    """A broker's process. It is up when its port accepts connections."""

    argv: tuple[str, ...]
    port: int


class Publisher(Protocol):
    """`send` is the subject's own bound method if that fits, so that a call has no overhead."""

    @property
    def send(self) -> Callable[[bytes], object]: ...

    @property
    def send_batch(self) -> Callable[[list[bytes]], object]: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class AsyncPublisher(Protocol):
    @property
    def send(self) -> Callable[[bytes], Awaitable[object]]: ...

    @property
    def send_batch(self) -> Callable[[list[bytes]], Awaitable[object]]: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


class Sink:
    """Receives what a subscriber gets. Its methods return True when everything has arrived.

    `ready` reports that the subscription is made.
    """

    def __init__(self, job: Job, check: Check, ready: Callable[[], None]) -> None:
        self.is_batch = job.load.mode is Mode.BATCH
        self.one = check.one_timed if job.load.mode is Mode.PACED else check.one
        self.many = check.many
        self.ready = ready

    def message(self, data: bytes) -> bool:
        """Check a peer's message: one event, or many that were packed by hand."""
        return self.many(unpack_by_hand(data)) if self.is_batch else self.one(data)


class Peer(ABC):
    """A subject of the benchmark."""

    name: ClassVar[str]
    keeps: ClassVar[str]  # what is stored when an event is received, for the reader of the table
    packages: ClassVar[tuple[str, ...]]  # the distributions that it needs, whose versions are reported
    holds_in_publisher: ClassVar[bool] = False  # the publisher holds what a stalled subscriber has not read

    def missing(self) -> str | None:
        """Why it cannot run here, apart from a missing package, or None."""
        return None

    def program(self) -> str | None:
        """The server's program, if it is not Python. Its version is reported too."""
        return None

    def refuses(self, load: Load) -> str | None:
        """Why it cannot run a load, or None."""
        return None

    def server(self, place: Path, port: int, load: Load) -> Server | None:
        return None

    @abstractmethod
    def publisher(self, job: Job) -> Publisher | Awaitable[AsyncPublisher]: ...

    @abstractmethod
    def subscribe(self, job: Job, sink: Sink) -> Awaitable[None] | None: ...

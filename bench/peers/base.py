"""The small interface that each subject has: where it can run, its server, a publisher, a subscriber."""

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
    """A broker's process; it is up when its port accepts."""

    argv: tuple[str, ...]
    port: int


class Publisher(Protocol):
    """`send` is the subject's own bound method wherever it fits, so that nothing is added to a call."""

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
    """Where a subscriber hands over what it got; both answer True when everything is there.

    `ready` tells that the subscription is made.
    """

    def __init__(self, job: Job, check: Check, ready: Callable[[], None]) -> None:
        self.is_batch = job.load.mode is Mode.BATCH
        self.one = check.one_timed if job.load.mode is Mode.PACED else check.one
        self.many = check.many
        self.ready = ready

    def message(self, data: bytes) -> bool:
        """A peer's message: an event, or many that were packed by hand."""
        return self.many(unpack_by_hand(data)) if self.is_batch else self.one(data)


class Peer(ABC):
    """A subject of the benchmark."""

    name: ClassVar[str]
    keeps: ClassVar[str]  # what it has done when an event is received: for the reader of the table
    packages: ClassVar[tuple[str, ...]]  # distributions that it needs, and whose versions count
    holds_in_publisher: ClassVar[bool] = False  # who holds what a stalled subscriber has not read

    def missing(self) -> str | None:
        """Why it can't run here beyond a missing package, or None."""
        return None

    def program(self) -> str | None:
        """The server's program, where it is not Python: its version counts too."""
        return None

    def refuses(self, load: Load) -> str | None:
        """Why it has no such load, or None."""
        return None

    def server(self, place: Path, port: int, load: Load) -> Server | None:
        return None

    @abstractmethod
    def publisher(self, job: Job) -> Publisher | Awaitable[AsyncPublisher]: ...

    @abstractmethod
    def subscribe(self, job: Job, sink: Sink) -> Awaitable[None] | None: ...

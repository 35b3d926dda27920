"""Publishing from threads: what they send gathers here until the loop comes to take all of it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reknit.client.blocking.streams import SyncStream
from reknit.client.publish.publisher import Kept, Publisher
from reknit.config import LimitSettings
from reknit.errors import Full, ReknitError
from reknit.frame import Buffer
from reknit.outcome import Outcome

if TYPE_CHECKING:
    from reknit.client.blocking.session import LoopThread


class SyncPublisher:
    """One source on one topic. Made by `session.publisher(topic)`; any number of threads may use it.

    `publish` returns when the event is kept. `send` returns as soon as there is room, `flush` when everything so far
    is kept: for many events that is the faster way.
    """

    def __init__(self, thread: LoopThread, publisher: Publisher, limits: LimitSettings) -> None:
        self._thread = thread
        self._publisher = publisher
        self._limits = limits
        self.is_closed = False
        self._changed = threading.Condition()
        self._payloads: list[bytes] = []
        self._bytes = 0
        self._error: ReknitError | None = None
        self._flying: deque[tuple[int, Kept]] = deque()
        self._flying_bytes = 0
        self._flying_bytes_max = limits.publish_window_bytes // 2
        self._order = asyncio.Lock()
        self._pumping: asyncio.Task[None] | None = None

    @property
    def source(self) -> bytes:
        return self._publisher.source

    @property
    def topic(self) -> str:
        return self._publisher.topic

    # -- the threads' side

    def send(self, payload: Buffer | str) -> None:
        """Publish one event; returns when there is room for more. Errors come from `flush`, or the next `send`."""
        checked = self._checked(payload)
        with self._changed:
            while self._bytes > self._limits.batch_bytes and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            self._payloads.append(checked)
            self._bytes += len(checked) + 4
            is_first = len(self._payloads) == 1
        if is_first:
            self._thread.soon(self._wake)

    def publish(self, payload: Buffer | str) -> Outcome | None:
        """Publish one event; returns when it is kept. With outcomes, gives what became of it."""
        return self.publish_many((payload,))

    def publish_many(self, payloads: Iterable[Buffer | str]) -> Outcome | None:
        """Publish many events; returns when all of them are kept."""
        checked = [self._checked(payload) for payload in payloads]
        if checked:
            self._thread.run(self._publish(checked))
        return None

    def stream(self, headers: dict[str, str] | None = None, size: int | None = None) -> SyncStream:
        """One event, written in pieces while it is on its way already; see `Publisher.stream`."""
        return SyncStream(self._thread, self._publisher.stream(headers, size))

    def flush(self) -> None:
        """Return when everything sent so far is kept. Raises what became of it otherwise."""
        if not self.is_closed:
            self._thread.run(self._flush())

    def close(self) -> None:
        """Return when everything is kept; afterwards nothing can be published."""
        try:
            self.flush()
        finally:
            self.is_closed = True
            self._thread.run(self._publisher.close())

    def __enter__(self) -> SyncPublisher:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _checked(self, payload: Buffer | str) -> bytes:
        if isinstance(payload, str):
            payload = payload.encode()
        elif type(payload) is not bytes:
            payload = bytes(payload)
        if len(payload) > self._limits.payload_bytes_max:
            text = f"a payload of {len(payload)} bytes on {self.topic!r}"
            raise Full(text, "limits.payload_bytes_max")
        return payload

    # -- the loop's side

    def _wake(self) -> None:
        if self._pumping is None:
            self._pumping = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        """Hand over what has gathered, again and again while there is something."""
        try:
            while self._payloads:
                await self._put([])
        except ReknitError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._pumping = None

    async def _put(self, more: list[bytes]) -> Kept | None:
        """Publish what has gathered, and more, when the window has room; gives what is done when it is kept."""
        async with self._order:
            await self._make_room()
            payloads = self._take() + more
            if not payloads:
                return None
            kept = self._publisher.publish_many(payloads)
            size = sum(map(len, payloads))
            self._flying.append((size, kept))
            self._flying_bytes += size
            return kept

    def _take(self) -> list[bytes]:
        with self._changed:
            payloads, self._payloads, self._bytes = self._payloads, [], 0
            self._changed.notify_all()
        return payloads

    async def _make_room(self) -> None:
        """At half the window, wait for the oldest: then the publisher itself never has to."""
        while self._flying and (self._flying[0][1].done() or self._flying_bytes >= self._flying_bytes_max):
            size, kept = self._flying.popleft()
            self._flying_bytes -= size
            await asyncio.shield(kept)

    async def _publish(self, payloads: list[bytes]) -> None:
        kept = await self._put(payloads)
        if kept is not None:
            await asyncio.shield(kept)

    async def _flush(self) -> None:
        await self._put([])
        if self._error is not None:
            raise self._error
        await self._publisher.flush()
